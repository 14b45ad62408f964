package build

import (
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

func TestEveryMissingVariableIsNamedWithItsPlace(t *testing.T) {
	tree := artifact.FromMap(map[string]string{
		"base/kustomization.yaml": "resources: [d.yaml]\nconfigMapGenerator: [{name: g, literals: ['k=${three}'], " +
			"options: {disableNameSuffixHash: true}}]\n",
		"base/d.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n" +
			"spec: {replicas: '${one}', template: {spec: {containers: [{name: a, image: 'x:${two}'}, {name: b, " +
			"image: 'x:${two}'}]}}}\n",
		"prod/kustomization.yaml": "resources: [../base, s.yaml]\n",
		"prod/s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n" +
			"stringData: {script: 'echo ${1}', ok: '${set}'}\n",
	})
	_, err := Build(t.Context(), Request{Tree: tree, Path: "prod",
		Substitution: &Substitution{Variables: map[string]string{"set": "value-of-set"}, Strict: true}})
	if err == nil {
		t.Fatal("built")
	}
	for _, says := range []string{
		"one (spec.replicas of Deployment/web in base/d.yaml)",
		"three (data.k of ConfigMap/g in base/kustomization.yaml), two (spec.template.spec.containers[0].image " +
			"of Deployment/web in base/d.yaml, and 1 more). Set them in spec.postBuild, give them defaults as in " +
			"${name:=value}, write $${ for a literal ${, or set the annotation " +
			"kustomize.toolkit.fluxcd.io/substitute: disabled",
		"two (spec.template.spec.containers[0].image of Deployment/web in base/d.yaml, and 1 more). Set them in " +
			"spec.postBuild, give them defaults as in ${name:=value}, write $${ for a literal ${, or set the " +
			"annotation kustomize.toolkit.fluxcd.io/substitute: disabled",
		`stringData.script of Secret/s in prod/s.yaml: "${1}" is not a substitution expression`,
	} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%q does not say %q", err, says)
		}
	}
	if strings.Contains(err.Error(), "value-of-set") {
		t.Errorf("the error contains the value of a variable: %v", err)
	}
}

func TestOriginsAreNotedOnlyWhenAskedFor(t *testing.T) {
	files := map[string]string{"kustomization.yaml": "resources: [a.yaml]\n", "a.yaml": cm("a")}
	for want, req := range map[bool]Request{false: {}, true: {BuildMetadata: []string{"originAnnotations"}}} {
		req.Tree = artifact.FromMap(files)
		result, err := Build(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if _, got := result.Objects[0].GetAnnotations()[originAnnotation]; got != want {
			t.Errorf("annotations %v", result.Objects[0].GetAnnotations())
		}
		if _, empty := result.Objects[0].Object["metadata"].(map[string]any)["annotations"]; empty != want {
			t.Error("an empty map of annotations is left")
		}
	}
}
