package api_test

import (
	"context"
	"maps"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestRefusedReleases checks that the API server rejects invalid HelmReleases, and that the error says why.
func TestRefusedReleases(t *testing.T) {
	client := serve(t)
	namespace := testenv.Namespace(t)
	kind := helmv2.GroupVersion.WithKind(helmv2.HelmReleaseKind)
	registry := map[string]any{"url": "oci://example.com/charts/app"}
	source := map[string]any{"kind": "HelmRepository", "name": "a"}
	release := func(changes map[string]any) map[string]any {
		spec := map[string]any{"interval": "1m",
			"chart": map[string]any{"spec": map[string]any{"chart": "a", "sourceRef": source}}}
		maps.Copy(spec, changes)
		return spec
	}
	oci := func(key string, value any) map[string]any {
		spec := maps.Clone(registry)
		spec[key] = value
		return release(map[string]any{"chart": map[string]any{"kind": "OCIRepository", "spec": spec}})
	}
	retried := map[string]any{"name": "RemediateOnFailure", "retryInterval": "1m"}
	for name, c := range map[string]struct {
		spec map[string]any
		says string
	}{
		"no chart": {map[string]any{"interval": "1m"}, "either chart or chartRef must be set"},
		"two charts": {release(map[string]any{"chartRef": map[string]any{"kind": "HelmChart", "name": "a"}}),
			"either chart or chartRef must be set"},
		"a template without a source": {
			release(map[string]any{"chart": map[string]any{"spec": map[string]any{"chart": "a"}}}),
			"spec.chart and spec.sourceRef are required"},
		"a registry without a URL": {
			release(map[string]any{"chart": map[string]any{"kind": "OCIRepository", "spec": map[string]any{}}}),
			"spec.url is required"},
		"a registry for a HelmChart": {release(map[string]any{"chart": map[string]any{"spec": registry}}),
			"spec.url is only supported"},
		"a chart name in a registry": {oci("chart", "a"), "spec.chart is not supported"},
		"a version in a registry":    {oci("version", "1.x"), "set spec.ref"},
		"a source of a registry":     {oci("sourceRef", source), "spec.sourceRef is not supported"},
		"values files in a registry": {oci("valuesFiles", []any{"a"}), "spec.valuesFiles is not supported"},
		"an install that waits": {release(map[string]any{"install": map[string]any{"strategy": retried}}),
			"retryInterval"},
		"an upgrade that waits": {release(map[string]any{"upgrade": map[string]any{"strategy": retried}}),
			"retryInterval"},
		"no reference to a cluster": {release(map[string]any{"kubeConfig": map[string]any{}}), "exactly one of"},
		"a release name that is long": {release(map[string]any{"releaseName": strings.Repeat("a", 54)}),
			"spec.releaseName"},
		"an unknown CRD policy": {release(map[string]any{"install": map[string]any{"crds": "Drop"}}),
			"spec.install.crds"},
		"an interval without a unit": {release(map[string]any{"interval": "5"}), "spec.interval"},
		"an unknown drift mode": {release(map[string]any{"driftDetection": map[string]any{"mode": "on"}}),
			"mode"},
		"an unknown wait strategy": {release(map[string]any{"waitStrategy": map[string]any{"name": "x"}}),
			"waitStrategy"},
		"a post-render strategy": {release(map[string]any{"postRenderStrategy": "all"}), "postRenderStrategy"},
		"an unsupported chart source": {release(map[string]any{"chart": map[string]any{"kind": "Bucket"}}),
			"spec.chart.kind"},
		"values of an unsupported kind": {release(map[string]any{"valuesFrom": []any{map[string]any{"kind": "Pod",
			"name": "a"}}}), "spec.valuesFrom[0].kind"},
	} {
		t.Run(name, func(t *testing.T) {
			obj := &unstructured.Unstructured{Object: map[string]any{"spec": runtime.DeepCopyJSON(c.spec)}}
			obj.SetGroupVersionKind(kind)
			obj.SetName("bad")
			var err error
			testenv.Eventually(t, "served", func() error {
				_, err = client.Resource(resource(kind, kind.Version)).Namespace(namespace).
					Create(context.Background(), obj, metav1.CreateOptions{})
				if apierrors.IsNotFound(err) {
					return err // established, but not served yet
				}
				return nil
			})
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an Invalid error that contains %q", err, c.says)
			}
		})
	}
}
