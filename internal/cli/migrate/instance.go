package migrate

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// byDeployments are fields of a FluxInstance that Flux Operator turns into flags and replicas of Deployments.
var byDeployments = []string{"components", "cluster.size", "cluster.multitenant",
	"cluster.multitenantWorkloadIdentity", "cluster.objectLevelWorkloadIdentity",
	"cluster.tenantDefaultServiceAccount", "cluster.tenantDefaultDecryptionServiceAccount",
	"cluster.tenantDefaultKubeConfigServiceAccount"}

// notCopied are fields of a FluxInstance without a setting of ours, and why.
var notCopied = []struct{ field, note string }{
	{"distribution.version", "that of Sluice: --version"},
	{"distribution.registry", "that of Sluice: --registry"},
	{"distribution.artifact", "the manifests are those of sluice install"},
	{"distribution.artifactPullSecret", "the manifests are those of sluice install"},
	{"sharding.shards", "one process reconciles all shards; --auto-shards shares them among replicas"},
	{"sharding.key", "--auto-shards needs no labels"},
	{"sharding.storage", "--storage-backend-s3-bucket keeps artifacts"},
	{"storage.class", "--storage-backend-s3-bucket keeps artifacts; without it, a restart fetches them again"},
	{"storage.size", "--storage-backend-s3-bucket keeps artifacts; without it, a restart fetches them again"},
}

// changesManifests are fields of a FluxInstance that change manifests in ways that we do not know.
var changesManifests = []string{"kustomize.patches", "commonMetadata.labels", "commonMetadata.annotations"}

// readInstance returns the settings of a FluxInstance, and sets those that an installation of ours has.
func (s *Settings) readInstance(u *unstructured.Unstructured) (settings []Setting, warnings []string) {
	spec, _, _ := unstructured.NestedMap(u.Object, "spec")
	add := func(field, becomes, note string) {
		value, found, _ := unstructured.NestedFieldNoCopy(spec, strings.Split(field, ".")...)
		if !found {
			return
		}
		text := fmt.Sprint(value)
		if items, ok := value.([]any); ok {
			text = plural(len(items), "item")
		}
		settings = append(settings, Setting{Controller: refOf(u).String(), Name: "spec." + field, Value: text,
			Becomes: becomes, Note: note})
	}
	text := func(field string) string {
		value, _, _ := unstructured.NestedString(spec, strings.Split(field, ".")...)
		return value
	}
	for _, field := range byDeployments {
		add(field, "", "in the flags of the Deployments")
	}
	if v := text("cluster.domain"); v != "" && v != "cluster.local" {
		s.ClusterDomain = v
		add("cluster.domain", "--cluster-domain="+v, "")
	}
	if v, found, _ := unstructured.NestedBool(spec, "cluster", "networkPolicy"); found && !v {
		s.NoNetworkPolicy = true
		add("cluster.networkPolicy", "--network-policy=false", "")
	}
	if v := text("distribution.imagePullSecret"); v != "" {
		s.PullSecret = v
		add("distribution.imagePullSecret", "--image-pull-secret="+v, "")
	}
	for _, f := range notCopied {
		add(f.field, "", f.note)
	}
	if kind := text("sync.kind"); kind != "" {
		add("sync.kind", "", fmt.Sprintf("the %s and the Kustomization stay as they are", kind))
	}
	changes := slices.Clone(changesManifests)
	if v := text("cluster.type"); v != "" && v != "kubernetes" {
		changes = append(changes, "cluster.type")
	}
	for _, field := range changes {
		before := len(settings)
		if add(field, "", "not copied"); len(settings) > before {
			warnings = append(warnings, fmt.Sprintf("%s sets spec.%s, which changes manifests of Flux and is not "+
				"copied. Change those of sluice install --export if Sluice needs it", refOf(u), field))
		}
	}
	return settings, warnings
}
