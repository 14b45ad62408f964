package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestKubectlCommandsOfPages creates the objects of pages, and runs the commands of the pages with kubectl. No
// controller runs, so that it tests names, annotations and columns.
func TestKubectlCommandsOfPages(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("kubectl is not installed: its commands in the documentation are not run")
	}
	sluice, err := testenv.Binary("sluice")
	if err != nil {
		t.Fatal(err)
	}
	tools := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", tools, "filippo.io/age/cmd/age-keygen")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	installDefinitions(t)
	for page, prints := range map[string]string{
		"../README.md":             "release",
		"alert.md":                 "on-call",
		"gate.md":                  "release",
		"high-availability.md":     "secret/artifact-bucket created",
		"image-discovery.md":       "annotated",
		"imagepolicy.md":           "",
		"imagerepository.md":       "secret/registry-login created",
		"imageupdateautomation.md": "annotated",
		"provider.md":              "frontend-channel",
		"receiver.md":              "",
		"secrets.md":               "secret/sops-age configured",
	} {
		t.Run(strings.TrimPrefix(page, "../"), func(t *testing.T) {
			namespace := testenv.Namespace(t)
			createObjects(t, page, namespace)
			script := strings.Join(testenv.Blocks(t, page, "sh"), "")
			script = strings.NewReplacer("create namespace flux-system", "get namespace "+namespace,
				"flux-system", namespace, "namespace apps ", "namespace "+namespace+" ").Replace(script)
			if !strings.Contains(script, "kubectl ") {
				t.Fatalf("the page has no command of kubectl: %s", script)
			}
			out := inNamespace(t, tools+":"+filepath.Dir(sluice), namespace, script)
			if !strings.Contains(out, prints) {
				t.Errorf("the commands print %q, want %q", out, prints)
			}
		})
	}
}

// createObjects creates the objects of a page. Those that a test does not need may have a name that is taken.
func createObjects(t *testing.T, page, namespace string) {
	t.Helper()
	c, err := client.New(testenv.Cluster(t), client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range pageObjects(t, page, namespace) {
		if o.GetName() == "registry-login" {
			continue // a command of the page creates it
		}
		if err := client.IgnoreAlreadyExists(c.Create(t.Context(), o)); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// inNamespace runs commands of a shell whose context has a namespace, and returns what they print.
func inNamespace(t *testing.T, path, namespace, script string) string {
	t.Helper()
	config, err := os.ReadFile(testenv.Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	script = "set -euo pipefail\nkubectl config set-context --current --namespace " + namespace + "\n" + script
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = filepath.Dir(file)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+file, "PATH="+path+":"+os.Getenv("PATH"),
		"SLUICE_NAMESPACE="+namespace)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	return string(out)
}
