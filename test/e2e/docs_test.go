package e2e

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestDocumentationExamples(t *testing.T) {
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	installDefinitions(t)
	c, err := client.New(testenv.Cluster(t), client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	namespace := testenv.Namespace(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	applied := 0
	for _, page := range pages {
		for _, block := range testenv.Blocks(t, filepath.Base(page), "yaml") {
			o := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(block), &o.Object); err != nil {
				t.Errorf("%s: %v", filepath.Base(page), err)
				continue
			}
			if o.GroupVersionKind().Group == "kustomize.config.k8s.io" {
				continue // a file of kustomize, not an object
			}
			o.SetNamespace(namespace)
			if o.GetKind() == "GateApproval" { // approvals are in the name of who creates them
				_ = unstructured.SetNestedField(o.Object, "admin", "spec", "user")
				unstructured.RemoveNestedField(o.Object, "spec", "groups")
			}
			err := c.Create(context.Background(), o, client.DryRunAll, client.FieldValidation("Strict"))
			if err != nil {
				t.Errorf("%s: %s %s: %v", filepath.Base(page), o.GetKind(), o.GetName(), err)
			}
			applied++
		}
	}
	if applied < 2 {
		t.Errorf("found %d examples", applied)
	}
}

func installDefinitions(t *testing.T) {
	t.Helper()
	objects, err := config.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := apply.NewCluster(testenv.Cluster(t), apply.ClusterOptions{WaitTimeout: 3 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	testenv.Eventually(t, "the definitions are served", func() error {
		_, err := cluster.Apply(context.Background(),
			apply.Request{Owner: apply.Owner{Group: "test.io", Namespace: "x", Name: "x"}, Objects: objects})
		return err
	})
}
