// Package testenv gives tests the real parts: the kube-apiserver of the playground and real git over HTTP and SSH.
// Only tests may import it.
package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// kubeconfigEnv points at a cluster to use instead of starting one.
const kubeconfigEnv = "SLUICE_TEST_KUBECONFIG"

// deadline of everything that a test waits for.
const deadline = time.Minute

var startOnce = sync.OnceValues(startCluster)

// Kubeconfig returns the file with admin access to the cluster, which all tests of one binary share.
func Kubeconfig(tb testing.TB) string {
	tb.Helper()
	file, err := startOnce()
	if err != nil {
		tb.Fatalf("cannot start the playground: %v", err)
	}
	return file
}

// Cluster returns admin access to the cluster.
func Cluster(tb testing.TB) *rest.Config {
	tb.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", Kubeconfig(tb))
	if err != nil {
		tb.Fatal(err)
	}
	cfg.QPS = -1
	return cfg
}

// Namespace makes a namespace that goes with the test.
func Namespace(tb testing.TB) string {
	tb.Helper()
	client, err := kubernetes.NewForConfig(Cluster(tb))
	if err != nil {
		tb.Fatal(err)
	}
	ns, err := client.CoreV1().Namespaces().Create(context.Background(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := client.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}); err != nil {
			tb.Error(err)
		}
	})
	return ns.Name
}

// Eventually waits until check returns nil, and fails the test with its last error after a minute.
func Eventually(tb testing.TB, what string, check func() error) {
	tb.Helper()
	end := time.NewTimer(deadline)
	defer end.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-end.C:
			tb.Fatalf("%s: not within %s: %v", what, deadline, err)
		case <-tick.C:
		}
	}
}

func startCluster() (string, error) {
	if file := os.Getenv(kubeconfigEnv); file != "" {
		return file, nil
	}
	// The name is unique to this process; the playground removes the file when it ends.
	file := filepath.Join(os.TempDir(), fmt.Sprintf("sluice-test-%d.kubeconfig", os.Getpid()))
	_, stop, err := startStoppable("cluster", "--kubeconfig", file)
	keep = append(keep, stop)
	return file, err
}

// keep holds on to the cluster's standard input: were it collected, it would be closed, and the cluster would end.
var keep = []func(){}

// startStoppable runs the playground as a child that ends with this process, and returns what it printed before "ready".
func startStoppable(args ...string) ([]string, func(), error) {
	binary, err := Binary("playground")
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "PLAYGROUND_PARENT_WATCH=1")
	stdin, err := cmd.StdinPipe() // closed by the kernel when this process ends, however it ends
	if err != nil {
		return nil, nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	var lines []string
	for out := bufio.NewScanner(stdout); out.Scan(); {
		if out.Text() == "ready" {
			go func() { _, _ = io.Copy(io.Discard, stdout) }() // ends with the child
			stop := func() {
				_ = stdin.Close() // asks it to end
				_ = cmd.Wait()    // by a signal or not
			}
			return lines, stop, nil
		}
		lines = append(lines, out.Text())
	}
	return nil, nil, errors.Join(cmd.Wait(), errors.New(stderr.String()))
}

// Binary returns the path of bin/<name> of this checkout, and builds it if it is not there.
func Binary(name string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	file := filepath.Join(root, "bin", name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(file+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close() // gives up the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	dir := map[string]string{"playground": filepath.Join(root, "playground"), "sluice": root}[name]
	build := exec.Command("go", "build", "-o", file, "./cmd/"+name)
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build %s: %w\n%s", name, err, out)
	}
	return file, nil
}

// Root returns the root of this checkout.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "playground", "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("not inside a checkout of Sluice")
}
