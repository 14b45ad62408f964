package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/oidcprovider"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

var (
	browser = flag.String("browser", "", "path of Chromium; without it the tests are skipped")
	only    = flag.String("only", ".", "run the browser tests whose names match")
	images  = flag.String("images", "", "folder to write screenshots of the pages to")
)

// Node runs the files by name: those of the pages expect the world as it was made, so they are first.
var tests = []string{"browser/attacks.test.mjs", "browser/pages.test.mjs", "browser/graph.test.mjs",
	"browser/fleet.test.mjs", "browser/in-cluster.test.mjs", "browser/workloads.test.mjs",
	"browser/while-shown.test.mjs", "browser/with-many.test.mjs"}

// browserTimeout bounds the run of all browser tests.
const browserTimeout = 8 * time.Minute

// bench is the world with the servers that the browser uses.
type bench struct {
	*world
	proxy      *testenv.Proxy // between the UI and the API server
	kubeconfig string         // leads through the proxy
	ui         *process
	pushed     string // commit that waits at the gate
}

// process is a running `sluice ui`.
type process struct {
	cmd     *exec.Cmd
	address string // with the token
}

func TestBrowser(t *testing.T) {
	if *browser == "" {
		t.Skip("needs Chromium and Node: run make test-ui")
	}
	cluster := newInCluster(t)
	s := system.NewImages(t, func(o *options.Options) { o.WatchAllNamespaces, o.UI = true, cluster.options })
	b := &bench{world: newWorld(s)}
	cluster.people(b.world)
	b.connect()
	if err := b.startUI(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.ui.stop() })
	reviews, err := b.reviews()
	if err != nil {
		t.Fatal(err)
	}
	hub, token, err := b.fleet(cluster.options.ExternalURL)
	if err != nil {
		t.Fatal(err)
	}
	origin, _, _ := strings.Cut(b.ui.address, "/login")
	where, err := json.Marshal(map[string]string{"control": serve(b, b.steps()), "address": origin,
		"inCluster": cluster.options.ExternalURL, "password": oidcprovider.Password, "browser": *browser,
		"reviews": reviews, "hub": hub, "hubToken": hubToken, "clusterToken": token, "images": *images})
	if err != nil {
		t.Fatal(err)
	}
	if *images != "" {
		node(t, string(where), "browser/screenshots.mjs")
		shrink(t, *images)
	}
	b.hostile()
	node(t, string(where), append([]string{"--test", "--test-concurrency=1", "--test-reporter=spec",
		"--test-name-pattern=" + *only}, tests...)...)
}

// node runs a script of the browser tests.
func node(t *testing.T, where string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), browserTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", args...)
	cmd.Env = append(os.Environ(), "SLUICE_UI_WORLD="+where)
	cmd.WaitDelay = 10 * time.Second // the browser may hold the output open after a timeout
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("browser tests failed: %v", err)
	}
}

// connect writes a kubeconfig that leads through a proxy, which can be cut.
func (b *bench) connect() {
	cfg, err := clientcmd.LoadFromFile(testenv.Kubeconfig(b))
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range cfg.Clusters {
		if b.proxy == nil {
			b.proxy = testenv.NewProxy(b, strings.TrimPrefix(c.Server, "https://"))
		}
		c.Server = "https://" + b.proxy.Address()
	}
	b.kubeconfig = filepath.Join(b.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, b.kubeconfig); err != nil {
		b.Fatal(err)
	}
}

// startUI runs `sluice ui`. It serves on the address of the last run, so that open pages can reconnect.
func (b *bench) startUI() error {
	addr := "127.0.0.1:0"
	if b.ui != nil {
		addr = strings.TrimPrefix(strings.SplitN(b.ui.address, "/login", 2)[0], "http://")
	}
	p, err := b.serveUI(b.kubeconfig, addr)
	if err == nil {
		b.ui = p
	}
	return err
}

// serveUI runs `sluice ui` and returns when it has printed its address.
func (b *bench) serveUI(kubeconfig, addr string) (*process, error) {
	return b.run("ui", "--open=false", "--addr", addr, "--kubeconfig", kubeconfig)
}

// run runs sluice and returns when it has printed an address.
func (b *bench) run(args ...string) (*process, error) {
	binary, err := testenv.Binary("sluice")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(b.Context(), binary, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "http://") {
			return &process{cmd: cmd, address: lines.Text()}, nil
		}
	}
	return nil, errors.Join(errors.New("sluice "+args[0]+" printed no address"), cmd.Wait())
}

func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	_ = p.cmd.Wait()
	return nil
}
