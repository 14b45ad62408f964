package inputprovider_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestInputsReachResourceSets changes the inputs of both kinds of providers: a ResourceSet applies an object for each
// of them, and removes it with its input. An error of a provider removes nothing.
func TestInputsReachResourceSets(t *testing.T) {
	s := newProviders(t)
	h := newHost(t, "")
	h.answer("/inputs", `{"inputs":[{"id":"1","name":"a"}]}`)
	s.provider("service", "type: ExternalService\ninsecure: true\nurl: "+h.URL+"/inputs")
	s.clusterProvider("fleet", "selector: {matchLabels: {fleet: a}}")
	set := &controlplanev1.ResourceSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "apps"}}
	if err := yaml.UnmarshalStrict([]byte(`
inputsFrom:
- name: service
- {kind: ClusterInputProvider, apiVersion: inputs.toolkit.fluxcd.io/v1alpha1, name: fleet}
resources:
- apiVersion: v1
  kind: ConfigMap
  metadata:
    name: app-<< inputs.name >>
    namespace: << inputs.provider.namespace >>
  data:
    by: << inputs.provider.kind >>`), &set.Spec); err != nil {
		t.Fatal(err)
	}
	s.Create(set)
	has := func(name, by string) {
		t.Helper()
		testenv.Eventually(t, name+" is applied", func() error {
			var c corev1.ConfigMap
			if err := s.Get(&c, name); err != nil {
				return err
			}
			if c.Data["by"] != by {
				return fmt.Errorf("data: %v", c.Data)
			}
			return nil
		})
	}
	has("app-a", "ResourceSetInputProvider")
	s.kubeConfig("east", "", map[string]string{"fleet": "a"})
	has("app-east", "ClusterInputProvider")
	h.answer("/inputs", `{"inputs":[{"id":"1","name":"a"},{"id":"2","name":"b"}]}`)
	s.RequestReconcile(&controlplanev1.ResourceSetInputProvider{}, "service")
	has("app-b", "ResourceSetInputProvider")

	h.answer("/inputs", `{}`)
	s.RequestReconcile(&controlplanev1.ResourceSetInputProvider{}, "service")
	s.NotReady(&controlplanev1.ResourceSetInputProvider{}, "service", "ReconciliationFailed", "list 'inputs'")
	has("app-b", "ResourceSetInputProvider")
	h.answer("/inputs", `{"inputs":[{"id":"2","name":"b"}]}`)
	s.RequestReconcile(&controlplanev1.ResourceSetInputProvider{}, "service")
	s.Gone(&corev1.ConfigMap{}, "app-a")
	has("app-b", "ResourceSetInputProvider")
}
