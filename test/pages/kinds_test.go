package pages

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// kinds are the pages whose commands are about the objects on the page, with a text that they print.
var kinds = map[string]string{
	"../README.md":                "release",
	"alert.md":                    "on-call",
	"azure-devops.md":             "hooks.example.com/hook/",
	"bitbucket.md":                "hooks.example.com/hook/",
	"clusterinputprovider.md":     "fleet",
	"gate.md":                     "release",
	"gitea.md":                    "hooks.example.com/hook/",
	"github.md":                   "hooks.example.com/hook/",
	"gitlab.md":                   "hooks.example.com/hook/",
	"image-discovery.md":          "annotated",
	"imagepolicy.md":              "",
	"imagerepository.md":          "secret/registry-login created",
	"imageupdateautomation.md":    "annotated",
	"notifications.md":            "team-chat",
	"provider.md":                 "frontend-channel",
	"receiver.md":                 "",
	"repository-structure.md":     "",
	"resourceset.md":              "name: team-a",
	"resourcesetinputprovider.md": "GitHubPullRequest",
	"secrets.md":                  "secret/sops-age configured",
}

// token is what a person has who follows a page about a git host.
const token = "export TOKEN=t"

// possessions is what a person has who follows a page, as the page says.
var possessions = map[string]string{
	"github.md":       token + "; openssl genrsa -traditional -out app.pem 2048 2> openssl.log",
	"gitlab.md":       token,
	"gitea.md":        token,
	"bitbucket.md":    token,
	"azure-devops.md": token,

	"resourcesetinputprovider.md": token,
}

// TestPagesOfKinds creates the objects of pages and runs their commands, in the order of the page. Only the namespace
// differs from the page. No controller runs, so that it tests names, annotations and columns.
func TestPagesOfKinds(t *testing.T) {
	t.Parallel()
	kubectl(t)
	sluice := binary(t)
	tools := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", tools, "filippo.io/age/cmd/age-keygen")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	installDefinitions(t)
	for page, prints := range kinds {
		t.Run(strings.TrimPrefix(page, "../"), func(t *testing.T) {
			t.Parallel()
			namespace := testenv.Namespace(t)
			steps := possessions[page] + "\n" + kindSteps(t, page, namespace)
			out := inNamespace(t, tools+":"+filepath.Dir(sluice), namespace, steps)
			if !strings.Contains(out, prints) {
				t.Errorf("the commands print %q, want %q", out, prints)
			}
		})
	}
}

var manifestOrCommands = regexp.MustCompile("(?sm)^( *)```(yaml|sh)\n(.*?)^ *```$")

// kindSteps returns the commands of a page with those that create its objects, in the order of the page.
func kindSteps(t *testing.T, page, namespace string) string {
	t.Helper()
	replaced := strings.NewReplacer("create namespace flux-system", "get namespace "+namespace,
		"flux-system", namespace, "namespace apps ", "namespace "+namespace+" ",
		"--namespace=apps", "--namespace="+namespace)
	var steps strings.Builder
	commands := 0
	for _, b := range manifestOrCommands.FindAllStringSubmatch(testenv.Page(t, page), -1) {
		content := regexp.MustCompile("(?m)^"+b[1]).ReplaceAllString(b[3], "")
		if b[2] == "sh" {
			steps.WriteString(replaced.Replace(content))
			commands++
			continue
		}
		for _, o := range objectsOf(t, page, content, namespace) {
			if o.GetName() == "registry-login" {
				continue // a command of the page creates it
			}
			text, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&steps, "kubectl apply --server-side --force-conflicts -f - <<'END OF OBJECT'\n%s\n"+
				"END OF OBJECT\n", text)
		}
	}
	if commands == 0 {
		t.Fatal("the page has no command")
	}
	return steps.String()
}

// inNamespace runs commands of a shell whose context has a namespace, and returns what they print.
func inNamespace(t *testing.T, path, namespace, script string) string {
	t.Helper()
	config, err := os.ReadFile(testenv.Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	script = "set -euo pipefail\nkubectl config set-context --current --namespace " + namespace + "\n" + script
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+file, "PATH="+path+":"+os.Getenv("PATH"),
		"SLUICE_NAMESPACE="+namespace)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	return string(out)
}
