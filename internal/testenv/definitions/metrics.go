package definitions

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// podMetrics stands for metrics-server: it serves the objects that tests create.
const podMetrics = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: pods.metrics.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, for tests"}
spec:
  group: metrics.k8s.io
  scope: Namespaced
  names: {kind: PodMetrics, plural: pods, singular: podmetrics}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// ServePodMetrics makes a cluster serve metrics.k8s.io until the test ends. It returns what sets the usage of a pod.
func ServePodMetrics(tb testing.TB, cfg *rest.Config) func(namespace, pod, cpu, memory string) {
	tb.Helper()
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(podMetrics), definition); err != nil {
		tb.Fatal(err)
	}
	if err := c.Create(tb.Context(), definition); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Delete(context.Background(), definition); err != nil {
			tb.Error(err)
		}
	})
	return func(namespace, pod, cpu, memory string) {
		testenv.Eventually(tb, "metrics of "+pod, func() error {
			o := &unstructured.Unstructured{Object: map[string]any{"containers": []any{map[string]any{"name": "main",
				"usage": map[string]any{"cpu": cpu, "memory": memory}}}}}
			o.SetAPIVersion("metrics.k8s.io/v1beta1")
			o.SetKind("PodMetrics")
			o.SetNamespace(namespace)
			o.SetName(pod)
			return client.IgnoreAlreadyExists(c.Create(tb.Context(), o))
		})
	}
}
