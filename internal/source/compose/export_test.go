package compose

import (
	"maps"
	"strings"
	"testing"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestInputs(t *testing.T) {
	large := strings.Repeat("x", maxInputs)
	trees := map[string]*artifact.Tree{"src": artifact.FromMap(map[string]string{
		"ok.yaml": "replicas: 3\nenv: production\nlist: [a, {b: 1.5}]\n", "empty.yaml": "", "list.yaml": "[1]",
		"bad.yaml": "a: [", "twice.yaml": "a: 1\na: 2", "large.yaml": "a: " + large, "dir/x": "",
		"aliases.yaml": "a: &a " + large[:maxInputs/8] + "\nb: [*a, *a, *a, *a]\nc: [*a, *a, *a, *a]\n",
	})}
	built := artifact.FromMap(map[string]string{"ok.yaml": "made: true"})
	for from, want := range map[string]string{"@src/ok.yaml": "production", "@artifact/ok.yaml": "true"} {
		got, err := Inputs(Output{Inputs: from}, built, trees)
		if err != nil || !strings.Contains(string(got["env"].Raw)+string(got["made"].Raw), want) {
			t.Errorf("%s: %s, %v", from, got, err)
		}
	}
	for from, message := range map[string]string{
		"@src/none.yaml": "'none.yaml' does not exist in the source. Correct the file or inputsFrom. The " +
			"last artifact stays available",
		"@src/dir":           "not a file",
		"@src/empty.yaml":    "does not contain a mapping",
		"@src/list.yaml":     "does not contain a mapping",
		"@src/bad.yaml":      "is not YAML",
		"@src/twice.yaml":    "already set",
		"@src/large.yaml":    "exceeds 65536 bytes",
		"@src/aliases.yaml":  "exceeds 65536 bytes",
		"@artifact/no.yaml":  "does not exist",
		"@other/inputs.yaml": "no source has this alias",
	} {
		got, err := Inputs(Output{Inputs: from}, built, trees)
		if got != nil || fault.Reason(err, "") != meta.BuildFailedReason || !strings.Contains(err.Error(), message) {
			t.Errorf("%s: %s, %v", from, got, err)
		}
	}
}

func TestNamespaceMetadata(t *testing.T) {
	const head = "apiVersion: source.extensions.fluxcd.io/v1beta1\nkind: NamespaceMetadata\n"
	trees := map[string]*artifact.Tree{"src": artifact.FromMap(map[string]string{
		"ok.yaml":    head + "metadata:\n  labels: {tier: gold, secret: x}\n  annotations: {note: text, other: text}\n",
		"value.yaml": head + "metadata:\n  labels: {tier: platinum}\n",
		"kind.yaml":  "apiVersion: v1\nkind: Namespace\nmetadata:\n  labels: {tier: gold}\n",
		"field.yaml": head + "metadata:\n  name: kube-system\n", "spec.yaml": head + "spec: {}\n",
	})}
	allowed := extensionsv1beta1.NamespaceMetadataFile{AllowedLabels: map[string]string{"tier": "^(gold|silver)$"},
		AllowedAnnotations: map[string]string{"note": ".*"}}
	m, err := NamespaceMetadata(Output{Metadata: "@src/ok.yaml"}, allowed, trees)
	if err != nil || !maps.Equal(m.Labels, map[string]string{"tier": "gold"}) ||
		!maps.Equal(m.Annotations, map[string]string{"note": "text"}) {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := NamespaceMetadata(Output{Metadata: "@src/none.yaml"}, allowed, trees); err != nil ||
		len(m.Labels)+len(m.Annotations) > 0 {
		t.Errorf("a file that does not exist: %+v, %v", m, err)
	}
	for name, message := range map[string]string{
		"value.yaml": "does not match '^(gold|silver)$'. Correct the file. The Namespace keeps its " +
			"metadata", "kind.yaml": "not NamespaceMetadata", "field.yaml": "unknown field",
		"spec.yaml": "unknown field",
	} {
		m, err := NamespaceMetadata(Output{Metadata: "@src/" + name, Namespace: "x"}, allowed, trees)
		if len(m.Labels) > 0 || fault.Reason(err, "") != meta.BuildFailedReason ||
			!strings.Contains(err.Error(), message) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	allowed.AllowedLabels["tier"] = "("
	if _, err := NamespaceMetadata(Output{Metadata: "@src/ok.yaml"}, allowed, trees); err == nil ||
		!strings.Contains(err.Error(), "is not valid") {
		t.Errorf("invalid expression: %v", err)
	}
}

func TestOptionalCopies(t *testing.T) {
	optional := func(from string) Copy { return Copy{From: from, To: "@artifact/", Optional: true} }
	copies := []Copy{optional("@src/none.yaml"), optional("@src/none/**"), optional("@src/*.none"),
		optional("@src/config.yaml")}
	tree, err := Build(t.Context(), copies, sources(t))
	if err != nil || !maps.Equal(contents(t, tree), map[string]string{"config.yaml": "a: 1\n"}) {
		t.Fatalf("%v", err)
	}
	if _, err := Build(t.Context(), copies[:3], sources(t)); err == nil ||
		!strings.Contains(err.Error(), "would be empty. Correct spec.artifacts[].copy or the source, or remove "+
			"the artifact. The last artifact stays available") {
		t.Errorf("an artifact without files: %v", err)
	}
	broken := Copy{From: "@tars/broken.tgz", To: "@artifact/", Strategy: Extract, Optional: true}
	if _, err := Build(t.Context(), []Copy{copies[3], broken}, sources(t)); err == nil {
		t.Error("a broken archive was skipped")
	}
}

func TestNamespacesOfCaptures(t *testing.T) {
	trees := map[string]*artifact.Tree{"repo": artifact.FromMap(map[string]string{"tenants/Team-A/apps/web/x": "1",
		"tenants/team-b/apps/web/x": "2"})}
	outputs := []Output{{Name: "{app}", Namespace: "{tenant}", Inputs: "@repo/tenants/{tenant}/in.yaml",
		Metadata: "@repo/tenants/{tenant}/ns.yaml",
		Copies:   []Copy{{From: "@repo/tenants/{tenant}/apps/{app}/**", To: "@artifact/", Optional: true}}}}
	const pattern = "@repo/tenants/{tenant}/apps/{app}"
	if err := Check([]string{"repo"}, pattern, outputs); err != nil {
		t.Fatal(err)
	}
	got, err := Expand(pattern, outputs, trees)
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if a := got[0]; a.Namespace != "team-a" || a.Inputs != "@repo/tenants/Team-A/in.yaml" ||
		a.Metadata != "@repo/tenants/Team-A/ns.yaml" || !a.Copies[0].Optional {
		t.Errorf("%+v", a)
	}
	trees["repo"] = artifact.FromMap(map[string]string{"tenants/a.b/apps/web/x": ""})
	if _, err := Expand(pattern, outputs, trees); err == nil ||
		!strings.Contains(err.Error(), "the namespace 'a.b' of artifact 'web' is not valid") {
		t.Errorf("%v", err)
	}
	for _, inputs := range []string{"@repo/../x", "@other/x", "@repo/"} {
		err := Check([]string{"repo"}, "", []Output{{Name: "x", Inputs: inputs, Copies: outputs[0].Copies}})
		if err == nil {
			t.Errorf("inputsFrom %s is accepted", inputs)
		}
	}
}
