package build

import (
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// TestFilesOfOtherTypesAreNoKustomizations has kustomization files that kustomize refuses, where each way of a build
// reads them.
func TestFilesOfOtherTypesAreNoKustomizations(t *testing.T) {
	const list = "resources: [a.yaml]\n"
	for head, says := range map[string]string{
		"apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\n": "A Kustomization object needs " +
			"a file of another name, such as sync.yaml: kustomize reads files of this name as its own configuration",
		"apiVersion: v1\nkind: Kustomization\n": `has apiVersion "v1"`,
		"apiVersion: x\n": "Correct apiVersion and kind, " +
			"or give the file another name",
		"apiVersion: kustomize.config.k8s.io/v1\n":                       `"kustomize.config.k8s.io/v1"`,
		"kind: ConfigMap\n":                                              `kind "ConfigMap"`,
		"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Component\n": `kind "Component"`,
	} {
		for where, dir := range map[string]string{"entry": "", "base": "base/", "generated": "below/"} {
			files := map[string]string{dir + "kustomization.yaml": head + list, dir + "a.yaml": cm("a")}
			if where == "base" {
				files["kustomization.yaml"] = "resources: [base]\n"
			}
			_, err := Build(t.Context(), Request{Tree: artifact.FromMap(files)})
			if where == "generated" && strings.Contains(head, "Component") {
				continue // components are left out there
			}
			if err == nil || !strings.Contains(err.Error(), says) ||
				!strings.Contains(err.Error(), dir+"kustomization.yaml") {
				t.Errorf("%q as %s: %v", head, where, err)
			}
		}
	}
}

func TestSeveralKustomizationFilesAreNamed(t *testing.T) {
	for _, dir := range []string{"", "base/"} {
		files := map[string]string{dir + "kustomization.yaml": "resources: [a.yaml]\n", dir + "a.yaml": cm("a"),
			dir + "Kustomization": "resources: [a.yaml]\n"}
		if dir != "" {
			files["kustomization.yaml"] = "resources: [base]\n"
		}
		_, err := Build(t.Context(), Request{Tree: artifact.FromMap(files)})
		if err == nil || !strings.Contains(err.Error(), "2 kustomization files") ||
			!strings.Contains(err.Error(), dir+"kustomization.yaml, "+dir+"Kustomization. Keep one of them") {
			t.Errorf("%q: %v", dir, err)
		}
	}
}

// TestAKustomizationObjectMayBeListed has an object in a file whose name is that of kustomization files, listed as a
// manifest.
func TestAKustomizationObjectMayBeListed(t *testing.T) {
	result, err := Build(t.Context(), Request{Tree: artifact.FromMap(map[string]string{
		"kustomization.yaml": "resources: [sync/kustomization.yaml]\n",
		"sync/kustomization.yaml": "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\n" +
			"metadata: {name: app}\nspec: {path: ./x}\n",
	})})
	if err != nil || len(result.Objects) != 1 || result.Objects[0].GetName() != "app" {
		t.Errorf("%v, %v", result.Objects, err)
	}
}

func TestGeneratedObjectsNameTheirOriginAsInFlux(t *testing.T) {
	result, err := Build(t.Context(), Request{Tree: artifact.FromMap(map[string]string{
		"kustomization.yaml": "configMapGenerator: [{name: g, literals: [a=b]}]\nbuildMetadata: [managedByLabel]\n"})})
	if err != nil {
		t.Fatal(err)
	}
	o := result.Objects[0]
	if !strings.Contains(o.GetAnnotations()[originAnnotation], "configuredIn: kustomization.yaml") ||
		len(o.GetLabels()) > 0 {
		t.Errorf("annotations %v, labels %v", o.GetAnnotations(), o.GetLabels())
	}
}

func TestCutValuesAreWarnedAbout(t *testing.T) {
	result, err := Build(t.Context(), Request{Tree: artifact.FromMap(map[string]string{"a.yaml": cm("a") +
		"data: {k: '${color}', l: '${quote}${color}${quote}'}\n"}),
		Substitution: &Substitution{Variables: map[string]string{"color": "a #b", "quote": `"`}, Strict: true}})
	if err != nil || len(result.Warnings) != 1 {
		t.Fatalf("%q, %v", result.Warnings, err)
	}
	for _, part := range []string{"data.k: ", "variable color", "ConfigMap/a in a.yaml", "'${quote}${color}${quote}'"} {
		if !strings.Contains(result.Warnings[0], part) || strings.Contains(result.Warnings[0], "#b") {
			t.Errorf("%q does not contain %q", result.Warnings[0], part)
		}
	}
}

func TestLabelsThatVariablesMakeNumbersNameTheVariable(t *testing.T) {
	result, err := Build(t.Context(), Request{Tree: artifact.FromMap(map[string]string{"a.yaml": "apiVersion: v1\n" +
		"kind: ConfigMap\nmetadata: {name: a, labels: {example.com/n: '${NUM}'}}\n"}),
		Substitution: &Substitution{Variables: map[string]string{"NUM": "1"}, Strict: true}})
	if err == nil || !strings.Contains(err.Error(), "variable NUM as a number") ||
		!strings.Contains(err.Error(), "'${quote}${NUM}${quote}' and define the variable quote as '\"'") {
		t.Errorf("%v, %v", result.Warnings, err)
	}
}

func TestNamesThatAreNumbersAreNamed(t *testing.T) {
	for field, metadata := range map[string]string{"name": "{name: 123}", "namespace": "{name: a, namespace: 123}"} {
		for _, file := range []string{"resources: [a.yaml]\n", "resources: [a.yaml]\ncommonAnnotations: {b: c}\n"} {
			_, err := Build(t.Context(), Request{Tree: artifact.FromMap(map[string]string{"kustomization.yaml": file,
				"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: " + metadata + "\n"})})
			if err == nil || !strings.Contains(err.Error(), "metadata."+field+" of ConfigMap/") ||
				!strings.Contains(err.Error(), "must be text. Quote it") {
				t.Errorf("%s, %s: %v", field, file, err)
			}
		}
	}
}

// TestMalformedDocumentsAreFoundByTheirLine has documents that only kustomize cannot read.
func TestMalformedDocumentsAreFoundByTheirLine(t *testing.T) {
	for _, file := range []string{"resources: [a.yaml]\n", "resources: [a.yaml]\nnamePrefix: x-\n"} {
		for line, text := range map[string]string{"4": cm("a") + "---\n# end\n...\n", "6": cm("a") + "---\n" +
			"# x\n---\n# end\n...\n"} {
			_, err := Build(t.Context(), Request{Tree: artifact.FromMap(map[string]string{"kustomization.yaml": file,
				"a.yaml": text})})
			want := "a.yaml, in the document at line " + line + ", is not valid YAML"
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, line %s: %v", file, line, err)
			}
		}
	}
}

func TestDanglingSymlinksNameTheirTarget(t *testing.T) {
	_, err := Build(t.Context(), Request{Tree: artifact.FromMap(map[string]string{"a.yaml": cm("a"),
		"b.yaml": "symlink:nowhere"})})
	if err == nil || !strings.Contains(err.Error(), `b.yaml is a symlink to "nowhere", which is not in the source. `+
		"Remove it, or add the file that it names") {
		t.Error(err)
	}
}
