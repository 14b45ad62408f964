package build

import (
	"context"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// TestTargetNamespaceRenamesNoNamespace declares Namespaces in all ways in which kustomize would rename them.
func TestTargetNamespaceRenamesNoNamespace(t *testing.T) {
	namespace := func(name string) string { return "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + "}\n" }
	develop := namespace("develop")
	const cm = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tns}\n"
	for name, c := range map[string]struct {
		files   map[string]string
		refused string
	}{
		"no kustomization file": {map[string]string{"n.yaml": develop, "c.yaml": cm}, "'develop' in n.yaml"},
		"listed": {map[string]string{"n.yaml": develop, "kustomization.yaml": "resources: [n.yaml]\n"},
			"'develop'"},
		"in a base": {map[string]string{"base/n.yaml": develop, "base/kustomization.yaml": "resources: [n.yaml]\n",
			"kustomization.yaml": "resources: [base]\n"}, "'develop'"},
		"with a namespace of its own": {map[string]string{"n.yaml": develop,
			"kustomization.yaml": "resources: [n.yaml]\nnamespace: develop\n"}, "'develop'"},
		"in a List": {map[string]string{"n.yaml": "apiVersion: v1\nkind: List\n" +
			"items: [{apiVersion: v1, kind: Namespace, metadata: {name: develop}}]\n"}, "'develop'"},
		"in a component": {map[string]string{"c/n.yaml": develop, "a.yaml": cm,
			"c/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n" +
				"resources: [n.yaml]\n",
			"kustomization.yaml": "resources: [a.yaml]\ncomponents: [c]\n"}, "'develop'"},
		"next to the target": {map[string]string{"n.yaml": develop, "m.yaml": namespace("t3")}, "'develop'"},
		"two":                {map[string]string{"n.yaml": develop, "m.yaml": namespace("other")}, "t3' would rename"},
		"of the same name":   {map[string]string{"n.yaml": namespace("t3"), "c.yaml": cm}, ""},
		"renamed by the source itself": {map[string]string{"base/n.yaml": develop,
			"base/kustomization.yaml": "resources: [n.yaml]\nnamespace: t3\n",
			"kustomization.yaml":      "resources: [base]\n"}, ""},
		"none": {map[string]string{"c.yaml": cm}, ""},
	} {
		result, err := Build(context.Background(), Request{Tree: artifact.FromMap(c.files), TargetNamespace: "t3"})
		switch {
		case c.refused == "" && err != nil,
			c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: %v", name, err)
		case c.refused != "" && !strings.Contains(err.Error(), "spec.targetNamespace 't3' would rename"):
			t.Errorf("%s: %v", name, err)
		case c.refused != "" && !strings.Contains(err.Error(), "Remove the Namespace from the source, "+
			"name it 't3', or remove spec.targetNamespace"):
			t.Errorf("%s: the error does not say what to do: %v", name, err)
		case c.refused == "" && len(result.Objects) == 0:
			t.Errorf("%s: no objects", name)
		}
	}
}
