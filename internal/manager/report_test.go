package manager_test

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// definition has the required fields of the FluxReport of Flux Operator 0.58.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fluxreports.fluxcd.controlplane.io}
spec:
  group: fluxcd.controlplane.io
  scope: Namespaced
  names: {kind: FluxReport, listKind: FluxReportList, plural: fluxreports, singular: fluxreport}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        x-kubernetes-validations: [{rule: "self.metadata.name == 'flux'"}]
        properties:
          spec:
            type: object
            required: [distribution]
            properties:
              cluster:
                type: object
                required: [platform, serverVersion]
                properties: {nodes: {type: integer}, platform: {type: string}, serverVersion: {type: string}}
              components:
                type: array
                items:
                  type: object
                  required: [image, name, ready, status]
                  properties:
                    image: {type: string}
                    name: {type: string}
                    ready: {type: boolean}
                    status: {type: string}
              distribution:
                type: object
                required: [entitlement, status]
                properties:
                  entitlement: {type: string}
                  managedBy: {type: string}
                  status: {type: string}
                  version: {type: string}
              operator:
                type: object
                required: [apiVersion, platform, version]
                properties: {apiVersion: {type: string}, platform: {type: string}, version: {type: string}}
              reconcilers:
                type: array
                items:
                  type: object
                  required: [apiVersion, kind]
                  properties:
                    apiVersion: {type: string}
                    kind: {type: string}
                    stats:
                      type: object
                      required: [failing, running, suspended]
                      properties:
                        failing: {type: integer}
                        running: {type: integer}
                        suspended: {type: integer}
                        totalSize: {type: string}
              sync:
                type: object
                required: [id, ready, status]
                properties:
                  id: {type: string}
                  path: {type: string}
                  ready: {type: boolean}
                  source: {type: string}
                  status: {type: string}
          status:
            type: object
            x-kubernetes-preserve-unknown-fields: true
`

// TestFluxReport reads the report of controllers that start with one source, in a cluster that has the kind.
func TestFluxReport(t *testing.T) {
	s := system.Prepare(t)
	s.Configure = append(s.Configure, func(o *options.Options) {
		o.Controllers = []string{options.SourceController, options.KustomizeController, options.ResourceSetController}
		o.Version = "v0.1.0"
	})
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(definition), &crd.Object); err != nil {
		t.Fatal(err)
	}
	s.Create(crd)
	t.Cleanup(func() { // other packages may use the control plane
		if err := s.Client.Delete(context.Background(), crd); err != nil {
			t.Error(err)
		}
	})
	report := &unstructured.Unstructured{}
	report.SetGroupVersionKind(schema.GroupVersionKind{Group: "fluxcd.controlplane.io", Version: "v1",
		Kind: "FluxReport"})
	testenv.Eventually(t, "the kind is served", func() error {
		return client.IgnoreNotFound(s.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "flux"},
			report.DeepCopy()))
	})
	s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.GitRepository("app")
	s.Start()
	testenv.Eventually(t, "the report is written", func() error {
		if err := s.Get(report, "flux"); err != nil {
			return err
		}
		spec, _, _ := unstructured.NestedMap(report.Object, "spec")
		conditions, _, _ := unstructured.NestedSlice(report.Object, "status", "conditions")
		if len(conditions) != 1 {
			return fmt.Errorf("conditions: %v", conditions)
		}
		distribution := spec["distribution"].(map[string]any)
		reconcilers, _ := spec["reconcilers"].([]any)
		if distribution["version"] != "v0.1.0" || spec["cluster"] == nil || len(reconcilers) < 5 {
			return fmt.Errorf("the report is %v", spec)
		}
		for _, raw := range reconcilers {
			if r := raw.(map[string]any); r["kind"] == "GitRepository" {
				stats := r["stats"].(map[string]any)
				if stats["running"] == int64(1) && stats["failing"] == int64(0) {
					return nil
				}
			}
		}
		return fmt.Errorf("it has other reconcilers: %v", reconcilers)
	})
}
