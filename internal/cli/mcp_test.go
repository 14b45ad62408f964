package cli

import (
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// agent starts `sluice mcp` and returns a client of the SDK that is connected by its standard input and output.
func agent(t *testing.T, v environment, args ...string) *sdk.ClientSession {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	e := newEnv(in, out, io.Discard)
	e.getenv = v.get
	args = append([]string{"mcp", "--kubeconfig", testenv.Kubeconfig(t)}, args...)
	ended := make(chan int, 1)
	guard.Go("sluice mcp", func() { ended <- e.main(t.Context(), args, in, out, io.Discard) })
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test"}, nil).Connect(t.Context(),
		&sdk.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		select {
		case code := <-ended:
			if code != exitOK {
				t.Errorf("sluice mcp ended with %d", code)
			}
		case <-time.After(5 * time.Minute):
			t.Error("sluice mcp does not end with its input")
		}
	})
	return c
}

// ask calls a tool and returns its answer as JSON.
func ask(t *testing.T, c *sdk.ClientSession, tool string, arguments any, fails bool) string {
	t.Helper()
	r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(r.StructuredContent)
	if err != nil || r.IsError != fails {
		t.Fatalf("%s answered %s (%v)", tool, raw, err)
	}
	return string(raw)
}

func TestAgentProposesAChange(t *testing.T) {
	c, namespace := withDefinitions(t)
	host := testenv.NewGitea(t)
	host.Init("o/r")
	head := host.Commit("o/r", map[string]string{"app/a.yaml": configMap + "\"1\"\n"})
	repository := host.Host + "/o/r"
	clone := filepath.Join(t.TempDir(), "clone")
	git := exec.CommandContext(t.Context(), "git", "clone", "-q", repository, clone)
	if out, err := git.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	source := func(name, branch string) *sourcev1.GitRepository {
		return &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: sourcev1.GitRepositorySpec{URL: repository, Interval: meta.DurationOf(time.Hour),
				Reference: &sourcev1.GitRepositoryRef{Branch: branch}}}
	}
	ks := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app"},
		Spec: kustomizev1.KustomizationSpec{Interval: meta.DurationOf(time.Hour), Path: "./app", Prune: true,
			TargetNamespace: namespace, SourceRef: kustomizev1.SourceReference{Kind: "GitRepository",
				NamespacedName: meta.NamespacedName{Name: "fleet"}}}}
	ks.Spec.Gates = []meta.GateReference{{Name: "release"}}
	gate := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "release"},
		Spec: gatingv1.GateSpec{Interval: meta.DurationOf(time.Hour), Default: gatingv1.Closed}}
	makeAll(t, c, namespace, source("fleet", "main"), ks, gate)

	session := agent(t, environment{"GITEA_TOKEN": "s3cret"}, "--clone", clone, "--allow-write", "-n", namespace)
	change := map[string]any{"files": []map[string]any{{"path": "app/b.yaml",
		"content": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: added}\ndata: {password: hunter2}\n"}}}
	got := ask(t, session, "preview_change", change, false)
	if !strings.Contains(got, `"action":"created"`) || !strings.Contains(got, `"name":"added"`) ||
		strings.Contains(got, "hunter2") {
		t.Errorf("the preview is %s", got)
	}
	if got = ask(t, session, "simulate_gates", change, false); !strings.Contains(got, "release") {
		t.Errorf("the simulation is %s", got)
	}
	ask(t, session, "preview_change", map[string]any{"branch": "none"}, true)

	change["title"], change["message"] = "Add a ConfigMap", "It was missing."
	if got = ask(t, session, "propose_change", change, false); !strings.Contains(got, "http://host/o/r/pulls/7") {
		t.Errorf("the proposal is %s", got)
	}
	pulls := host.Pulls()
	pull := pulls[0]
	branch := pull["head"]
	if len(pulls) != 1 || pull["base"] != "main" || !strings.HasPrefix(branch, "sluice-mcp/add-a-configmap-") ||
		!strings.Contains(pull["body"], "It was missing.") {
		t.Errorf("the pull request is %v", pull)
	}
	if now := strings.TrimSpace(host.Run("o/r", "rev-parse", "main")); now != head {
		t.Errorf("main is at %s, it was at %s", now, head)
	}
	if file := host.Run("o/r", "show", branch+":app/b.yaml"); !strings.Contains(file, "added") {
		t.Errorf("the branch has %q", file)
	}
	makeAll(t, c, namespace, source("preview", branch))
	if got = ask(t, session, "propose_change", change, true); !strings.Contains(got, "follows branch") {
		t.Errorf("a followed branch: %s", got)
	}
}

func TestAgentWithoutAClone(t *testing.T) {
	_, namespace := withDefinitions(t)
	run(t, "mcp", "--clone", t.TempDir()).wants(t, exitUsage, "not in a git repository")
	session := agent(t, nil, "-n", namespace, "--clone", "")
	if got := ask(t, session, "search_docs", map[string]any{"query": "gate"}, false); !strings.Contains(got, "docs/") {
		t.Errorf("got %s", got)
	}
}
