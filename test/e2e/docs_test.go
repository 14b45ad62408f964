package e2e

import (
	"context"
	"path/filepath"
	"strings"
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

// TestDocumentationExamples applies each manifest of the documentation as a dry-run.
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
	var pages []string
	for _, pattern := range []string{"*.md", "design/*.md", "../*.md"} {
		found, err := filepath.Glob(filepath.Join(root, "docs", pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	applied := 0
	for _, page := range pages {
		name, err := filepath.Rel(filepath.Join(root, "docs"), page)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range pageObjects(t, name, namespace) {
			err := c.Create(context.Background(), o, client.DryRunAll, client.FieldValidation("Strict"))
			if err != nil {
				t.Errorf("%s: %s %s: %v", name, o.GetKind(), o.GetName(), err)
			}
			applied++
		}
	}
	const least = 190
	if applied < least {
		t.Errorf("found %d examples", applied)
	}
}

// pageObjects returns the manifests of a page, for a namespace and the user of the tests.
func pageObjects(t *testing.T, page, namespace string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for _, block := range testenv.Blocks(t, page, "yaml") {
		for _, document := range strings.Split(block, "\n---\n") {
			o := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(document), &o.Object); err != nil {
				t.Errorf("%s: %v", page, err)
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
			objects = append(objects, o)
		}
	}
	return objects
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
