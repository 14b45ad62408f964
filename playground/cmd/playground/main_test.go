package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	corev1 "k8s.io/api/core/v1"
)

// mainEnv makes this test binary the playground.
const mainEnv = "PLAYGROUND_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// deadline of everything that a test waits for.
const deadline = 3 * time.Minute

// process is a playground under test.
type process struct {
	*exec.Cmd
	kubeconfig, temp string
	stdin            io.Closer
	stderr           bytes.Buffer
}

// launch starts a cluster and returns when it says that it is ready.
func launch(t *testing.T, args ...string) *process {
	t.Helper()
	p, err := tryLaunch(t, args...)
	if err != nil {
		t.Fatalf("%v: %s", err, p.stderr.String())
	}
	t.Cleanup(func() {
		if p.ProcessState == nil {
			p.end(t, syscall.SIGTERM)
		}
	})
	return p
}

func tryLaunch(t *testing.T, args ...string) (*process, error) {
	t.Helper()
	p := &process{temp: t.TempDir(), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	p.Cmd = exec.Command(os.Args[0], append([]string{"cluster", "--kubeconfig", p.kubeconfig}, args...)...)
	p.Env = append(os.Environ(), mainEnv+"=1", parentWatch+"=1", "TMPDIR="+p.temp)
	p.Stderr = &p.stderr
	stdin, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return p, errors.Join(err, p.Wait())
	}
	if line != "ready\n" {
		t.Errorf("it prints %q", line)
	}
	return p, nil
}

// end sends a signal and waits.
func (p *process) end(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := p.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	p.wait(t)
}

func (p *process) wait(t *testing.T) {
	t.Helper()
	if err := p.Wait(); err != nil {
		t.Errorf("it ended with %v: %s", err, p.stderr.String())
	}
}

func (p *process) config(t *testing.T) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	return cfg
}

func (p *process) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(p.config(t))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// files are what stands below a directory.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		if name != dir {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// eventually waits until check returns nil.
func eventually(t *testing.T, check func(context.Context) error) {
	t.Helper()
	end, tick := time.NewTimer(deadline), time.NewTicker(20*time.Millisecond)
	defer end.Stop()
	defer tick.Stop()
	for {
		err := check(t.Context())
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("not within %s: %v", deadline, err)
		}
	}
}

func TestCleanStopLeavesNothing(t *testing.T) {
	for what, stop := range map[string]func(t *testing.T, p *process){
		"on SIGTERM":              func(t *testing.T, p *process) { p.end(t, syscall.SIGTERM) },
		"on SIGINT":               func(t *testing.T, p *process) { p.end(t, os.Interrupt) },
		"when its parent is gone": func(t *testing.T, p *process) { _ = p.stdin.Close(); p.wait(t) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := launch(t)
			if info, err := os.Stat(p.kubeconfig); err != nil || info.Mode().Perm() != 0o600 {
				t.Fatalf("kubeconfig: %v, %v", info, err)
			}
			address, err := url.Parse(p.config(t).Host)
			if err != nil {
				t.Fatal(err)
			}
			if ip := net.ParseIP(address.Hostname()); !ip.IsLoopback() {
				t.Errorf("it listens on %s", address.Host)
			}
			if state, err := os.ReadDir(p.temp); err != nil || len(state) == 0 {
				t.Errorf("its state is not where it is looked for: %v", err)
			}
			stop(t, p)
			if left := append(files(t, p.temp), files(t, filepath.Dir(p.kubeconfig))...); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
			if p.stderr.Len() > 0 {
				t.Errorf("it says on stderr: %s", p.stderr.String())
			}
		})
	}
}

func TestRestartOnADirectoryKeepsObjects(t *testing.T) {
	for what, stop := range map[string]os.Signal{"after a clean stop": syscall.SIGTERM,
		"after a kill": syscall.SIGKILL} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			// The path is longer than that of a socket may be.
			dir := filepath.Join(t.TempDir(), strings.Repeat("long-", 20), "state")
			p := launch(t, "--dir", dir)
			kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"},
				Data: map[string]string{"key": "value"}}
			if _, err := p.client(t).CoreV1().ConfigMaps("default").
				Create(t.Context(), kept, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if stop == syscall.SIGTERM {
				p.end(t, stop)
			} else if err := p.Process.Kill(); err != nil || p.Wait() == nil {
				t.Fatalf("it was not killed: %v", err)
			}
			p = launch(t, "--dir", dir)
			got, err := p.client(t).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
			if err != nil || got.Data["key"] != "value" {
				t.Errorf("got %v, %v", got.Data, err)
			}
			nodes, err := p.client(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
			if err != nil || len(nodes.Items) != 3 {
				t.Errorf("%d nodes, %v", len(nodes.Items), err)
			}
		})
	}
}

func TestADirectoryIsUsedOnce(t *testing.T) {
	dir := t.TempDir()
	launch(t, "--dir", dir)
	p, err := tryLaunch(t, "--dir", dir)
	if err == nil {
		p.end(t, syscall.SIGTERM)
	}
	if got := p.stderr.String(); err == nil || !strings.Contains(got, dir+" is in use by another playground") {
		t.Errorf("got %v: %s", err, got)
	}
}
