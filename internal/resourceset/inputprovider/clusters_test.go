package inputprovider_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	inputsv1 "github.com/sluice-gitops/sluice/api/inputs/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// cluster is an input set.
type cluster struct {
	Name, KubeConfigSecret, Version, Tier string
	Reachable                             bool
	Labels, Annotations                   map[string]string
}

// clusters waits until a provider exports clusters that pass a check.
func (s *providers) clusters(name string, check func([]cluster) error) {
	s.Helper()
	testenv.Eventually(s, name+" exports its clusters", func() error {
		var obj inputsv1.ClusterInputProvider
		if err := s.Get(&obj, name); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(obj.Status.Conditions, "Ready") {
			return fmt.Errorf("not ready: %+v", obj.Status.Conditions)
		}
		text, err := json.Marshal(obj.Status.ExportedInputs)
		if err != nil {
			return err
		}
		var all []cluster
		if err := json.Unmarshal(text, &all); err != nil {
			return err
		}
		if err := check(all); err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
		return nil
	})
}

func (s *providers) clusterProvider(name, spec string) {
	s.Helper()
	obj := &inputsv1.ClusterInputProvider{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &obj.Spec); err != nil {
		s.Fatal(err)
	}
	s.Create(obj)
}

// kubeConfig creates a Secret with the kubeconfig of the test's cluster, or with another text.
func (s *providers) kubeConfig(name, content string, labels map[string]string) {
	s.Helper()
	if content == "" {
		raw, err := os.ReadFile(testenv.Kubeconfig(s))
		if err != nil {
			s.Fatal(err)
		}
		content = string(raw)
	}
	s.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name, Labels: labels,
		Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "secret", "region": "eu"}},
		Data: map[string][]byte{"value": []byte(content)}})
}

const unreachable = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x`

// TestClusters has Secrets that appear, change and vanish.
func TestClusters(t *testing.T) {
	s := newProviders(t)
	s.clusterProvider("fleet", "selector: {matchLabels: {fleet: a}}\ndefaultValues: {tier: dev}")
	s.clusters("fleet", func(all []cluster) error {
		if len(all) != 0 {
			return fmt.Errorf("%d clusters", len(all))
		}
		return nil
	})
	fleet := map[string]string{"fleet": "a"}
	s.kubeConfig("other", "", nil)
	s.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "empty", Labels: fleet}})
	s.kubeConfig("east", "", fleet)
	began := time.Now()
	s.clusters("fleet", func(all []cluster) error {
		if len(all) != 1 || all[0].Name != "east" || all[0].KubeConfigSecret != "east" || !all[0].Reachable ||
			all[0].Version == "" || all[0].Tier != "dev" || all[0].Labels["fleet"] != "a" ||
			len(all[0].Annotations) != 1 || all[0].Annotations["region"] != "eu" {
			return fmt.Errorf("wrong")
		}
		return nil
	})
	t.Logf("a new cluster was exported after %s", time.Since(began))

	t.Log("a cluster that does not answer is exported, and the others stay")
	s.kubeConfig("west", unreachable, fleet)
	s.clusters("fleet", func(all []cluster) error {
		if len(all) != 2 || !all[0].Reachable || all[1].Name != "west" || all[1].Reachable || all[1].Version != "" {
			return fmt.Errorf("wrong")
		}
		return nil
	})
	t.Log("one that answered before keeps its version")
	s.Patch(&corev1.Secret{}, "east", fmt.Sprintf(`{"stringData":{"value":%q}}`, unreachable))
	s.clusters("fleet", func(all []cluster) error {
		if len(all) != 2 || all[0].Reachable || all[0].Version == "" {
			return fmt.Errorf("wrong")
		}
		return nil
	})
	s.HasEvent("fleet", "ReconciliationSucceeded", "exported 2 input sets, 2 not reachable")
	if err := s.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace,
		Name: "east"}}); err != nil {
		t.Fatal(err)
	}
	s.clusters("fleet", func(all []cluster) error {
		if len(all) != 1 {
			return fmt.Errorf("%d clusters", len(all))
		}
		return nil
	})
	if err := s.Client.Delete(t.Context(), &inputsv1.ClusterInputProvider{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Namespace, Name: "fleet"}}); err != nil {
		t.Fatal(err)
	}
	s.Gone(&inputsv1.ClusterInputProvider{}, "fleet")
}

// TestClustersOfClusterAPI has a Cluster whose Secret comes later, as Cluster API creates it.
func TestClustersOfClusterAPI(t *testing.T) {
	s := newProviders(t)
	s.clusterProvider("fleet", "kind: Cluster\nselector: {matchLabels: {env: prod}}")
	s.NotReady(&inputsv1.ClusterInputProvider{}, "fleet", "ReconciliationFailed",
		"Install Cluster API, or set spec.kind to Secret")
	definition := &unstructured.Unstructured{}
	const text = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: clusters.cluster.x-k8s.io
  annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes-sigs/cluster-api"}
spec:
  group: cluster.x-k8s.io
  scope: Namespaced
  names: {kind: Cluster, listKind: ClusterList, plural: clusters, singular: cluster}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}`
	if err := yaml.Unmarshal([]byte(text), &definition.Object); err != nil {
		t.Fatal(err)
	}
	s.Create(definition)
	t.Cleanup(func() {
		if err := s.Client.Delete(context.Background(), definition); err != nil {
			t.Error(err)
		}
	})
	capi := &unstructured.Unstructured{}
	capi.SetGroupVersionKind(schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta1", Kind: "Cluster"})
	capi.SetNamespace(s.Namespace)
	capi.SetName("east")
	capi.SetLabels(map[string]string{"env": "prod"})
	testenv.Eventually(t, "Clusters are served", func() error { return s.Client.Create(t.Context(), capi.DeepCopy()) })
	s.RequestReconcile(&inputsv1.ClusterInputProvider{}, "fleet")
	s.clusters("fleet", func(all []cluster) error {
		if len(all) != 1 || all[0].Name != "east" || all[0].KubeConfigSecret != "east-kubeconfig" || all[0].Reachable {
			return fmt.Errorf("wrong")
		}
		return nil
	})
	s.kubeConfig("east-kubeconfig", "", map[string]string{"cluster.x-k8s.io/cluster-name": "east"})
	s.clusters("fleet", func(all []cluster) error {
		if len(all) != 1 || !all[0].Reachable || all[0].Version == "" || all[0].Labels["env"] != "prod" {
			return fmt.Errorf("wrong")
		}
		return nil
	})
}

// TestClusterPage compares an input set with the one in docs/clusterinputprovider.md.
func TestClusterPage(t *testing.T) {
	const page = "clusterinputprovider.md"
	s := newProviders(t)
	obj := &inputsv1.ClusterInputProvider{}
	if err := yaml.UnmarshalStrict([]byte(testenv.Blocks(t, page, "yaml")[0]), obj); err != nil {
		t.Fatal(err)
	}
	obj.Namespace = s.Namespace
	s.kubeConfig("east", "", map[string]string{"fleet": "production"})
	s.Create(obj)
	var want []map[string]any
	if err := yaml.Unmarshal([]byte(testenv.Blocks(t, page, "yml")[0]), &want); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the cluster is exported as on the page", func() error {
		if err := s.Get(obj, obj.Name); err != nil {
			return err
		}
		text, err := json.Marshal(obj.Status.ExportedInputs)
		if err != nil {
			return err
		}
		var got []map[string]any
		if err := json.Unmarshal(text, &got); err != nil || len(got) != 1 {
			return fmt.Errorf("%s, %w", text, err)
		}
		for key, value := range want[0] {
			switch key {
			case "id", "namespace", "version":
				value = got[0][key] // of the test
			}
			if !reflect.DeepEqual(got[0][key], value) {
				return fmt.Errorf("%s is %v, want %v", key, got[0][key], value)
			}
		}
		if len(got[0]) != len(want[0]) {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
}
