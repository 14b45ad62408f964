package migrate

import (
	"fmt"
	"strings"

	"github.com/Masterminds/semver/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// promotion is an API version that a minor version of Flux 2 introduced.
type promotion struct {
	minor   uint64
	group   string
	version string
	kinds   []string
}

// promotions are in the order of Flux's versions.
var promotions = []promotion{
	{minor: 0, group: "source.toolkit.fluxcd.io", version: "v1", kinds: []string{"GitRepository"}},
	{minor: 0, group: "source.toolkit.fluxcd.io", version: "v1beta2",
		kinds: []string{"Bucket", "HelmChart", "HelmRepository", "OCIRepository"}},
	{minor: 0, group: "kustomize.toolkit.fluxcd.io", version: "v1", kinds: []string{"Kustomization"}},
	{minor: 0, group: "helm.toolkit.fluxcd.io", version: "v2beta1", kinds: []string{"HelmRelease"}},
	{minor: 0, group: "notification.toolkit.fluxcd.io", version: "v1", kinds: []string{"Receiver"}},
	{minor: 0, group: "notification.toolkit.fluxcd.io", version: "v1beta2", kinds: []string{"Alert", "Provider"}},
	{minor: 0, group: "image.toolkit.fluxcd.io", version: "v1beta2", kinds: []string{"ImagePolicy", "ImageRepository"}},
	{minor: 0, group: "image.toolkit.fluxcd.io", version: "v1beta1", kinds: []string{"ImageUpdateAutomation"}},
	{minor: 2, group: "notification.toolkit.fluxcd.io", version: "v1beta3", kinds: []string{"Alert", "Provider"}},
	{minor: 2, group: "helm.toolkit.fluxcd.io", version: "v2beta2", kinds: []string{"HelmRelease"}},
	{minor: 3, group: "helm.toolkit.fluxcd.io", version: "v2", kinds: []string{"HelmRelease"}},
	{minor: 3, group: "source.toolkit.fluxcd.io", version: "v1", kinds: []string{"HelmChart", "HelmRepository"}},
	{minor: 3, group: "image.toolkit.fluxcd.io", version: "v1beta2", kinds: []string{"ImageUpdateAutomation"}},
	{minor: 4, group: "source.toolkit.fluxcd.io", version: "v1", kinds: []string{"Bucket"}},
	{minor: 6, group: "source.toolkit.fluxcd.io", version: "v1", kinds: []string{"OCIRepository"}},
	{minor: 7, group: "source.toolkit.fluxcd.io", version: "v1", kinds: []string{"ExternalArtifact"}},
	{minor: 7, group: "source.extensions.fluxcd.io", version: "v1beta1", kinds: []string{"ArtifactGenerator"}},
	{minor: 7, group: "image.toolkit.fluxcd.io", version: "v1",
		kinds: []string{"ImagePolicy", "ImageRepository", "ImageUpdateAutomation"}},
}

// VersionsOfFlux returns the newest API version of each kind in a version of Flux, such as "2.6" or "v2.6.1".
func VersionsOfFlux(version string) (map[schema.GroupKind]string, error) {
	v, err := semver.NewVersion(strings.TrimSpace(version))
	if err != nil || v.Major() != 2 {
		return nil, fmt.Errorf("%q is not a version of Flux 2. Use for example 2.6", version)
	}
	newest := map[schema.GroupKind]string{}
	for _, p := range promotions {
		if p.minor > v.Minor() {
			break
		}
		for _, kind := range p.kinds {
			newest[schema.GroupKind{Group: p.group, Kind: kind}] = p.version
		}
	}
	return newest, nil
}

// VersionsOf returns the newest version of each kind of the definitions.
func VersionsOf(definitions []*unstructured.Unstructured) map[schema.GroupKind]string {
	newest := map[schema.GroupKind]string{}
	for _, u := range definitions {
		d := parseDefinition(u)
		kind := schema.GroupKind{Group: d.group, Kind: d.kind}
		for _, v := range d.Versions {
			if newest[kind] == "" || isOlder(newest[kind], v) {
				newest[kind] = v
			}
		}
	}
	return newest
}
