package migrate

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// commandLimit is how long a command may take, so that one that hangs fails its test.
const commandLimit = 10 * time.Minute

// result is the outcome of a command.
type result struct {
	code     int
	out, err string
}

// sluice runs the binary against the cluster, in the namespace of Flux.
func (f *flux) sluice(args ...string) result {
	f.Helper()
	return f.sluiceAs(testenv.Kubeconfig(f), args...)
}

func (f *flux) sluiceAs(kubeconfig string, args ...string) result {
	f.Helper()
	binary, err := testenv.Binary("sluice")
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(f.Context(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append(args, "-n", f.namespace, "--kubeconfig", kubeconfig)...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	_ = cmd.Run() // the exit code is checked by the caller
	if ctx.Err() != nil {
		f.Fatalf("sluice %s did not end within %s\n%s\n%s", strings.Join(args, " "), commandLimit, &out, &errOut)
	}
	return result{code: cmd.ProcessState.ExitCode(), out: out.String(), err: errOut.String()}
}

// begin starts a command and returns a function that kills it.
func (f *flux) begin(args ...string) (kill func()) {
	f.Helper()
	binary, err := testenv.Binary("sluice")
	if err != nil {
		f.Fatal(err)
	}
	cmd := exec.Command(binary, append(args, "-n", f.namespace, "--kubeconfig", testenv.Kubeconfig(f))...)
	if err := cmd.Start(); err != nil {
		f.Fatal(err)
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
}

// wants checks the exit code and that the output contains all texts.
func (r result) wants(t testing.TB, code int, texts ...string) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit code %d, want %d\n%s\n%s", r.code, code, r.out, r.err)
	}
	for _, text := range texts {
		if !strings.Contains(r.out+r.err, text) {
			t.Fatalf("the output lacks %q:\n%s\n%s", text, r.out, r.err)
		}
	}
	return r
}

// lacks checks that the output does not contain texts.
func (r result) lacks(t testing.TB, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(r.out+r.err, text) {
			t.Fatalf("the output has %q:\n%s\n%s", text, r.out, r.err)
		}
	}
}

// kubelet runs the process of our Deployment while that has replicas, with the arguments of its container.
type kubelet struct {
	*flux
	storage string
	stop    func(syscall.Signal) // nil if none runs
}

// runSluice starts a kubelet until the test ends.
func (f *flux) runSluice() {
	f.Helper()
	k := &kubelet{flux: f, storage: f.TempDir()}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				k.end()
				return
			case <-tick.C:
				k.look(ctx)
			}
		}
	}()
	f.Cleanup(func() { cancel(); <-done })
}

// look starts or stops the process as the Deployment wants.
func (k *kubelet) look(ctx context.Context) {
	d := &appsv1.Deployment{}
	err := k.Get(ctx, client.ObjectKey{Namespace: k.namespace, Name: "sluice"}, d)
	if client.IgnoreNotFound(err) != nil {
		return
	}
	wanted, running := err == nil && *d.Spec.Replicas > 0, k.stop != nil
	switch {
	case wanted && !running:
		k.start(d.Spec.Template.Spec.Containers[0].Args)
	case !wanted && running:
		k.end()
	}
}

func (k *kubelet) start(args []string) {
	binary, err := testenv.Binary("sluice")
	if err != nil {
		k.Error(err)
		return
	}
	args = append(append([]string{}, args...), "--kubeconfig", testenv.Kubeconfig(k), "-n", k.namespace,
		"--runtime-namespace", k.namespace, "--storage-path", k.storage, "--storage-addr", "127.0.0.1:0",
		"--metrics-addr", "0", "--health-addr", "0", "--receiverAddr", "0", "--events-addr", "0", "--images-addr", "0",
		"--min-retry-delay", "50ms", "--log-level", "error")
	k.stop = testenv.Supervise(k, func() *exec.Cmd {
		process := exec.Command(binary, args...)
		process.Stderr = os.Stderr
		return process
	})
}

func (k *kubelet) end() {
	if k.stop != nil {
		k.stop(syscall.SIGTERM)
	}
	k.stop = nil
}
