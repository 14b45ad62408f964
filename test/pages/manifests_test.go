package pages

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
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
func pageObjects(t *testing.T, page, namespace string) (objects []*unstructured.Unstructured) {
	t.Helper()
	for _, block := range testenv.Blocks(t, page, "yaml") {
		objects = append(objects, objectsOf(t, page, block, namespace)...)
	}
	return objects
}

// objectsOf returns the manifests of a block.
func objectsOf(t *testing.T, page, block, namespace string) (objects []*unstructured.Unstructured) {
	t.Helper()
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
	return objects
}

// installDefinitions installs the definitions and the admission policies.
func installDefinitions(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t), "install", "--crds-only")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+testenv.Kubeconfig(t))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
