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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

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
	set := func(key string, value any) map[string]any { return release(map[string]any{key: value}) }
	retried := map[string]any{"name": "RemediateOnFailure", "retryInterval": "1m"}
	for name, c := range map[string]struct {
		spec map[string]any
		says string
	}{
		"no chart": {spec: map[string]any{"interval": "1m"}, says: "either chart or chartRef must be set"},
		"two charts": {spec: release(map[string]any{"chartRef": map[string]any{"kind": "HelmChart", "name": "a"}}),
			says: "either chart or chartRef must be set"},
		"a template without a source": {
			spec: release(map[string]any{"chart": map[string]any{"spec": map[string]any{"chart": "a"}}}),
			says: "spec.chart and spec.sourceRef are required"},
		"a registry without a URL": {
			spec: release(map[string]any{"chart": map[string]any{"kind": "OCIRepository", "spec": map[string]any{}}}),
			says: "spec.url is required"},
		"a registry for a HelmChart": {spec: release(map[string]any{"chart": map[string]any{"spec": registry}}),
			says: "spec.url is only supported"},
		"a chart name in a registry": {spec: oci("chart", "a"), says: "spec.chart is not supported"},
		"a version in a registry":    {spec: oci("version", "1.x"), says: "set spec.ref"},
		"a source of a registry":     {spec: oci("sourceRef", source), says: "spec.sourceRef is not supported"},
		"values files in a registry": {spec: oci("valuesFiles", []any{"a"}), says: "spec.valuesFiles is not supported"},
		"an install that waits": {spec: set("install", map[string]any{"strategy": retried}),
			says: "retryInterval"},
		"an upgrade that waits": {spec: set("upgrade", map[string]any{"strategy": retried}),
			says: "retryInterval"},
		"no reference to a cluster":  {spec: set("kubeConfig", map[string]any{}), says: "exactly one of"},
		"a long release name":        {spec: set("releaseName", strings.Repeat("a", 54)), says: "spec.releaseName"},
		"an unknown CRD policy":      {spec: set("install", map[string]any{"crds": "Drop"}), says: "spec.install.crds"},
		"an interval without a unit": {spec: set("interval", "5"), says: "spec.interval"},
		"an unknown drift mode":      {spec: set("driftDetection", map[string]any{"mode": "on"}), says: "mode"},
		"an unknown wait strategy":   {spec: set("waitStrategy", map[string]any{"name": "x"}), says: "waitStrategy"},
		"a post-render strategy":     {spec: set("postRenderStrategy", "all"), says: "postRenderStrategy"},
		"an unsupported source":      {spec: set("chart", map[string]any{"kind": "Bucket"}), says: "spec.chart.kind"},
		"values of a Pod": {spec: set("valuesFrom", []any{map[string]any{"kind": "Pod", "name": "a"}}),
			says: "spec.valuesFrom[0].kind"},
	} {
		t.Run(name, func(t *testing.T) { isRefused(t, client, namespace, kind, c.spec, c.says) })
	}
}

// isRefused checks that the API server rejects an object with a spec, and that the error contains a text.
func isRefused(t *testing.T, client dynamic.Interface, namespace string, kind schema.GroupVersionKind,
	spec map[string]any, says string) {
	t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": runtime.DeepCopyJSON(spec)}}
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
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want an Invalid error that contains %q", err, says)
	}
}
