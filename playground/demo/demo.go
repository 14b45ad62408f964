// Package demo shows the main job of Sluice on a control plane in a box: declarations in git become objects in a real
// Kubernetes API, in order and healthy, past a gate that a person opens, and a team hears of it. It runs the
// built sluice binary as a user would.
package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sluice-gitops/sluice/playground/cluster"
	"github.com/sluice-gitops/sluice/playground/git"
)

const (
	namespace = "flux-system"
	patience  = 3 * time.Minute // for the pipeline to be Ready

	// These stand in the pipeline where addresses go.
	gitPlaceholder  = "http://git.example"
	teamPlaceholder = "http://team.example"
)

// repositories are the directories of the examples that are served.
var repositories = []string{"istio", "webapp"}

// Options of the demo.
type Options struct {
	Sluice   string // the binary
	Examples string // directory with the repositories and the pipeline
	Exit     bool   // end once all is Ready
}

// Run runs the demo until all is Ready, or until the person ends it.
func Run(ctx context.Context, o Options, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "sluice-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d := &demo{Options: o, dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig"), screen: newScreen(out)}
	d.screen.title()
	for _, step := range []struct {
		what string
		do   func(context.Context) (stop func(), err error)
	}{
		{"git server with the sample repositories", d.serveGit},
		{"control plane: etcd, kube-apiserver, controllers, 3 nodes", d.startCluster},
		{"definitions of the *.toolkit.fluxcd.io kinds", d.installDefinitions},
		{"team that receives notifications", d.startTeam},
		{"sluice controller", d.startControllers},
		{"sluice ui, the web UI", d.startUI},
	} {
		began := time.Now()
		stop, err := step.do(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		defer stop()
		d.screen.done(step.what, time.Since(began))
	}
	if err := d.pipeline(ctx); err != nil {
		return err
	}
	if o.Exit {
		return nil
	}
	d.screen.whatToTry(d)
	return d.follow(ctx)
}

// demo is a running demo.
type demo struct {
	Options
	dir, kubeconfig string
	gitURL          string
	config          *rest.Config
	team            team
	screen          *screen
	died            chan error // of the controllers
	ui              string     // address of the web UI, with its token
}

func nothing() {}

// serveGit makes a repository of each directory and serves them; a clone of webapp is for the person to change.
func (d *demo) serveGit(context.Context) (func(), error) {
	root := filepath.Join(d.dir, "repositories")
	for _, name := range repositories {
		if err := d.makeRepository(root, name); err != nil {
			return nil, err
		}
	}
	server, err := git.Start(git.Options{Root: root, Addr: "127.0.0.1:0"})
	if err != nil {
		return nil, err
	}
	d.gitURL = server.URL
	clone := filepath.Join(d.dir, "webapp")
	err = errors.Join(
		run("", "git", "clone", "-q", d.gitURL+"/webapp", clone),
		run(clone, "git", "config", "user.name", "me"),
		run(clone, "git", "config", "user.email", "me@example.com"))
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return func() { _ = server.Close() }, nil
}

func (d *demo) makeRepository(root, name string) error {
	work, bare := filepath.Join(d.dir, "work-"+name), filepath.Join(root, name+".git")
	if err := os.CopyFS(work, os.DirFS(filepath.Join(d.Examples, name))); err != nil {
		return err
	}
	identity := []string{"-c", "user.name=Demo", "-c", "user.email=demo@example.com"}
	return errors.Join(
		run("", "git", "init", "-q", "--bare", "-b", "master", bare),
		run(work, "git", "init", "-q", "-b", "master"),
		run(work, "git", "add", "."),
		run(work, "git", append(identity, "commit", "-q", "-m", "The sample "+name)...),
		run(work, "git", "push", "-q", bare, "master"),
		os.RemoveAll(work))
}

func (d *demo) startCluster(ctx context.Context) (func(), error) {
	c, err := cluster.Start(ctx, cluster.Options{Dir: filepath.Join(d.dir, "cluster"), Nodes: 3})
	if err != nil {
		return nil, err
	}
	d.config = c.Config()
	return c.Stop, c.WriteKubeconfig(d.kubeconfig)
}

func (d *demo) installDefinitions(context.Context) (func(), error) {
	return nothing, run("", d.Sluice, "install", "--crds-only", "--kubeconfig", d.kubeconfig)
}

// startControllers runs the controllers as a child, whose log goes to a file.
func (d *demo) startControllers(context.Context) (func(), error) {
	logs, err := os.Create(filepath.Join(d.dir, "sluice.log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(d.Sluice, "controller", "--kubeconfig", d.kubeconfig, "--storage-path",
		filepath.Join(d.dir, "storage"),
		"--storage-addr", "127.0.0.1:0", "--metrics-addr", "0", "--health-addr", "0", "--receiverAddr", "0",
		"--events-addr", "0", "--images-addr", "0",
		"--allow-loopback-checks", "--log-encoding", "console") // the team is on loopback, and this may be a pod
	cmd.Stdout, cmd.Stderr = logs, logs
	d.died = make(chan error, 1)
	return startChild(cmd, d.died, logs)
}

// pipeline applies the pipeline and shows how it comes on, until all of it is Ready.
func (d *demo) pipeline(ctx context.Context) error {
	client, err := dynamic.NewForConfig(d.config)
	if err != nil {
		return err
	}
	objects, err := d.readPipeline()
	if err != nil {
		return err
	}
	began := time.Now()
	for _, o := range objects {
		resource := schema.GroupVersionResource{Group: o.GroupVersionKind().Group, Version: o.GroupVersionKind().
			Version, Resource: plural(o.GetKind())}
		target := dynamic.ResourceInterface(client.Resource(resource))
		if o.GetNamespace() != "" {
			target = client.Resource(resource).Namespace(o.GetNamespace())
		}
		// The namespace exists already: the installation created it.
		if _, err := target.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "demo"}); err != nil {
			return fmt.Errorf("cannot apply the pipeline: %w", err)
		}
	}
	state := newBoard(objects)
	paused, err := d.comeUp(ctx, client, state)
	if err != nil {
		d.screen.settle(state)
		return fmt.Errorf("the pipeline is not Ready: %w\n%s%s", err, state.problems(),
			tail(filepath.Join(d.dir, "sluice.log")))
	}
	d.screen.settle(state)
	d.screen.allReady(time.Since(began) - paused)
	return nil
}

// openOnEnter opens the gate when the person presses Enter.
func (d *demo) openOnEnter(ctx context.Context, client dynamic.Interface, gate *card) {
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return // the command opens it
	}
	if err := openGate(ctx, client, gate); err != nil && ctx.Err() == nil {
		d.died <- err
	}
}

// openGate requests to open a gate, as `sluice gate open` does.
func openGate(ctx context.Context, client dynamic.Interface, gate *card) error {
	request := fmt.Sprintf(`{"metadata":{"annotations":{"open.gate.fluxcd.io/requestedAt":%q}}}`, time.Now().UTC().
		Format(time.RFC3339))
	if _, err := client.Resource(gates).Namespace(namespace).
		Patch(ctx, gate.name, types.MergePatchType, []byte(request), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("cannot open the gate %s: %w", gate.name, err)
	}
	return nil
}

// comeUp shows the board until what the gate holds is all that is left, lets a person open the gate, or opens it itself
// without a terminal, and goes on until all is Ready. It returns how long the gate stayed closed for the person.
func (d *demo) comeUp(ctx context.Context, client dynamic.Interface, state *board) (paused time.Duration, err error) {
	var held []*card
	var gate *card
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = state.watch(bounded, client, func() bool {
		d.screen.draw(state)
		held, gate = state.waiting()
		return gate != nil
	}, d.died)
	if err != nil {
		return 0, err
	}
	if err := d.preview(bounded); err != nil {
		return 0, err
	}
	asks := !d.Exit && term.IsTerminal(int(os.Stdin.Fd()))
	d.screen.approval(held, gate, asks, d.ui)
	asked := time.Now()
	if asks { // a person takes any time, and may use the command instead
		go d.openOnEnter(ctx, client, gate)
	} else {
		if err := openGate(ctx, client, gate); err != nil {
			return 0, err
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	var opened time.Time
	err = state.watch(ctx, client, func() bool {
		if opened.IsZero() && !state.isOpen(gate) {
			return false // nothing of the board changes until then
		}
		if opened.IsZero() {
			opened = time.Now()
		}
		d.screen.draw(state)
		return state.ready()
	}, d.died)
	if err != nil {
		return 0, err
	}
	d.screen.approved(held, gate, time.Since(opened))
	alerted := slices.IndexFunc(held, func(c *card) bool { return c.kind == "Kustomization" })
	n, err := d.hear(ctx, held[alerted])
	if err == nil {
		d.screen.notified(n)
	}
	return opened.Sub(asked), err
}

func (d *demo) readPipeline() ([]*unstructured.Unstructured, error) {
	b, err := os.ReadFile(filepath.Join(d.Examples, "pipeline", "pipeline.yaml"))
	if err != nil {
		return nil, err
	}
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": namespace}}}
	objects := []*unstructured.Unstructured{ns}
	addressed := strings.NewReplacer(gitPlaceholder, d.gitURL, teamPlaceholder, d.team.url).Replace(string(b))
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(addressed), 4096); ; {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
}

// follow goes on showing changes until the person ends the demo.
func (d *demo) follow(ctx context.Context) error {
	client, err := dynamic.NewForConfig(d.config)
	if err != nil {
		return err
	}
	state := newBoard(nil)
	err = state.watch(ctx, client, func() bool {
		d.screen.changes(state)
		return false
	}, d.died)
	if ctx.Err() != nil {
		d.screen.bye()
		return nil
	}
	return err
}

func plural(kind string) string {
	if strings.HasSuffix(kind, "y") {
		return strings.ToLower(kind[:len(kind)-1]) + "ies"
	}
	return strings.ToLower(kind) + "s"
}

func run(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// tail returns the last lines of a file.
func tail(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return "last lines of " + filepath.Base(file) + ":\n" + strings.Join(lines[max(0, len(lines)-15):], "\n")
}
