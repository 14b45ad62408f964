package cli

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/offline/manifest"
)

// exported returns the output of install --export, without the generated CustomResourceDefinitions and ClusterRoles.
func exported(t *testing.T, args ...string) string {
	t.Helper()
	r := run(t, append([]string{"install", "--export"}, args...)...).wants(t, exitOK)
	objects, err := manifest.Decode([]byte(r.out))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, o := range objects {
		if o.GetKind() == "CustomResourceDefinition" || o.GetKind() == "ClusterRole" {
			continue
		}
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString("---\n" + string(text))
	}
	return b.String()
}

func TestInstallExport(t *testing.T) {
	golden(t, "export.yaml", exported(t))
}

func TestInstallExportWithOptions(t *testing.T) {
	golden(t, "export-options.yaml", exported(t, "-n", "gitops", "--components", "source-controller",
		"--components-extra", "kustomize-controller",
		"--registry", "registry.example.com/mirror", "--version", "v1.2.3", "--image-pull-secret", "pull",
		"--cluster-domain", "example.internal",
		"--log-level", "debug", "--network-policy=false", "--toleration-keys", "dedicated",
		"--watch-all-namespaces=false"))
}

func TestInstallExportOrder(t *testing.T) {
	objects, err := manifest.Decode([]byte(run(t, "install", "--export").wants(t, exitOK).out))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, o := range objects {
		kinds = append(kinds, o.GetKind())
	}
	if kinds[0] != "Namespace" || !slices.Contains(kinds, "CustomResourceDefinition") {
		t.Errorf("got %q", kinds)
	}
	only, err := manifest.Decode([]byte(run(t, "install", "--export", "--crds-only").wants(t, exitOK).out))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range only {
		switch o.GetKind() {
		case "Namespace", "CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
		default:
			t.Errorf("--crds-only prints a %s", o.GetKind())
		}
	}
	if len(only) < 10 || only[0].GetKind() != "Namespace" {
		t.Errorf("--crds-only prints %d objects, without the namespace or policies", len(only))
	}
}
