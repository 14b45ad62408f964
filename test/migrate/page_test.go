package migrate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// selfDeployed is the chapter that needs a Flux which deploys itself.
const selfDeployed = "Flux that deploys itself"

// pageCommands returns the commands of docs/migrate-from-flux.md, without "sluice", by chapter.
func pageCommands(t *testing.T) (chapters []string, commands map[string][]string) {
	t.Helper()
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "migrate-from-flux.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands = map[string][]string{}
	chapter := ""
	for line := range strings.Lines(string(page)) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			chapter = strings.TrimSpace(title)
			chapters = append(chapters, chapter)
		}
		if command, ok := strings.CutPrefix(line, "sluice "); ok {
			commands[chapter] = append(commands[chapter], strings.TrimSpace(command))
		}
	}
	return chapters, commands
}

// run runs a command of the page, with the directory and the namespaces of the test.
func (f *flux) run(command string) {
	f.Helper()
	command = strings.ReplaceAll(command, "./", f.dir+"/")
	command = strings.ReplaceAll(command, "team-a,team-b", strings.Join(f.teams, ","))
	f.sluice(strings.Fields(command)...).wants(f, 0)
}

// TestPage runs each command of the page but those of Flux that deploys itself, in their order. It goes back between
// chapters that migrate.
func TestPage(t *testing.T) {
	testenv.Full(t)
	f := newFlux(t)
	f.small()
	f.runSluice()
	f.dir = t.TempDir()
	if err := os.MkdirAll(filepath.Join(f.dir, "clusters"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(f.dir, "clusters", "app.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: source.toolkit.fluxcd.io/v1beta2\nkind: GitRepository\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	chapters, commands := pageCommands(t)
	count := 0
	for _, chapter := range chapters {
		if chapter == selfDeployed {
			continue
		}
		if strings.Contains(chapter, "some namespaces") {
			f.shardFlux()
		}
		for _, command := range commands[chapter] {
			f.run(command)
			count++
		}
		if strings.HasPrefix(chapter, "Side by side") {
			f.run("migrate flux --rollback --yes")
		}
	}
	if count < 10 {
		t.Errorf("the page has %d commands", count)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), "source.toolkit.fluxcd.io/v1\n") {
		t.Errorf("the manifest is %s", b)
	}
}

// applied gives a Deployment of Flux the labels of what Kustomization flux-system has applied.
func (f *flux) applied(name string) {
	f.Helper()
	labels := `{"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/name":"flux-system",` +
		`"kustomize.toolkit.fluxcd.io/namespace":"` + f.namespace + `"}}}`
	f.merge(appsv1.SchemeGroupVersion.WithKind("Deployment"), f.namespace, name, labels)
}

// TestPageOfFluxThatDeploysItself runs the commands of that chapter, until Sluice deploys itself from git.
func TestPageOfFluxThatDeploysItself(t *testing.T) {
	testenv.Full(t)
	f := newFlux(t)
	w := f.small()
	w.sync()
	f.applied("source-controller")
	f.runSluice()
	f.dir = t.TempDir()
	_, all := pageCommands(t)
	commands := all[selfDeployed]
	if len(commands) != 2 {
		t.Fatalf("the chapter has the commands %q, want two", commands)
	}
	f.run(commands[0])
	exported, err := os.ReadFile(filepath.Join(f.dir, "clusters", "prod", "flux-system", "gotk-components.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w.git.Commit("fleet", map[string]string{"clusters/prod/flux-system/gotk-components.yaml": string(exported)})
	f.run("reconcile source git flux-system")
	f.run(commands[1])

	key := client.ObjectKey{Namespace: f.namespace, Name: "source-controller"}
	testenv.Eventually(f, "what was only part of Flux is pruned", func() error {
		err := f.Get(f.Context(), key, &appsv1.Deployment{})
		if err == nil {
			return fmt.Errorf("Deployment %s exists", key)
		}
		return client.IgnoreNotFound(err)
	})
	d := &appsv1.Deployment{}
	if err := f.Get(f.Context(), client.ObjectKey{Namespace: f.namespace, Name: "sluice"}, d); err != nil {
		t.Fatal(err)
	}
	if got := d.Labels["kustomize.toolkit.fluxcd.io/name"]; got != "flux-system" {
		t.Errorf("Sluice is deployed by Kustomization %q", got)
	}
}
