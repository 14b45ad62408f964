// Package digest computes the digests that the status of a HelmRelease records. They are byte-equal to those that Flux
// writes, so that either controller recognizes the releases of the other. [Release] must not change: a release whose
// digest differs is upgraded.
package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"sort"

	yaml "go.yaml.in/yaml/v2"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	release "helm.sh/helm/v4/pkg/release/v1"
	kubeyaml "sigs.k8s.io/yaml"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
)

// observed is what the digest of a release covers, in this order.
type observed struct {
	Name          string         `json:"name"`
	Version       int            `json:"version"`
	Info          release.Info   `json:"info"`
	ChartMetadata chart.Metadata `json:"chartMetadata"`
	Config        map[string]any `json:"config"`
	Manifest      string         `json:"manifest"`
	Hooks         []release.Hook `json:"hooks"`
	Namespace     string         `json:"namespace"`
	OCIDigest     string         `json:"ociDigest,omitempty"`
}

// Release returns the digest of a stored release. Test hooks are not part of it, because anybody may run tests.
// ociDigest is the digest of the chart's OCI artifact; empty for other charts.
func Release(rel *release.Release, ociDigest string) string {
	o := observed{Name: rel.Name, Version: rel.Version, Manifest: rel.Manifest, Namespace: rel.Namespace,
		OCIDigest: ociDigest}
	if rel.Info != nil {
		o.Info = *rel.Info
	}
	if rel.Chart != nil && rel.Chart.Metadata != nil {
		o.ChartMetadata = *rel.Chart.Metadata
	}
	if len(rel.Config) > 0 {
		o.Config = rel.Config
	}
	for _, h := range rel.Hooks {
		if h != nil && !slices.Contains(h.Events, release.HookTest) {
			o.Hooks = append(o.Hooks, *h)
		}
	}
	return ofJSON(o)
}

// Config returns the digest of values. That of no values is the digest of nothing.
func Config(values map[string]any) string {
	if len(values) == 0 {
		return ofBytes(nil)
	}
	ordered := kubeyaml.JSONObjectToYAMLObject(values)
	sortKeys(ordered)
	text, err := yaml.Marshal(ordered)
	if err != nil {
		return ""
	}
	return ofBytes(text)
}

// sortKeys sorts the keys of all maps by their bytes. The encoder itself would sort by its own order.
func sortKeys(v any) {
	switch v := v.(type) {
	case yaml.MapSlice:
		sort.Slice(v, func(i, j int) bool { return v[i].Key.(string) < v[j].Key.(string) })
		for _, item := range v {
			sortKeys(item.Value)
		}
	case []any:
		for _, item := range v {
			sortKeys(item)
		}
	}
}

// PostRenderers returns the digest of spec.postRenderers; empty if there are none.
func PostRenderers(p []helmv2.PostRenderer) string {
	if len(p) == 0 {
		return ""
	}
	return ofJSON(p)
}

// CommonMetadata returns the digest of spec.commonMetadata; empty if it is not set.
func CommonMetadata(m *meta.CommonMetadata) string {
	if m == nil {
		return ""
	}
	return ofJSON(m)
}

// ofJSON returns the digest of v as an encoder writes it, with the newline at the end; empty if v cannot be encoded.
func ofJSON(v any) string {
	sum := sha256.New()
	if err := json.NewEncoder(sum).Encode(v); err != nil {
		return ""
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

func ofBytes(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}
