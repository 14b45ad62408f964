// Package testenv provides tests with real servers: kube-apiserver, and git over HTTP and SSH. Packages below it serve
// what needs large libraries, such as registries, S3, Helm and SOPS, so that most test binaries do not link them. Only
// tests may import it. Servers of the playground run as child processes, so that its dependencies are not those of
// this module.
package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Environment variables that name the kubeconfig of a cluster to use instead of starting one, and its audit log.
// sharedEnv says that other packages use the cluster at the same time.
const (
	kubeconfigEnv = "SLUICE_TEST_KUBECONFIG"
	auditLogEnv   = "SLUICE_TEST_AUDIT_LOG"
	sharedEnv     = "SLUICE_TEST_SHARED"
)

// OwnCluster makes a test binary start a cluster of its own, even if make test has one for all packages. Call it in
// an init function of tests that change definitions, admission policies or rights of the whole cluster, that run
// controllers which watch all namespaces, or that count the requests of everybody.
func OwnCluster() {
	if os.Getenv(sharedEnv) == "" {
		return // the variables name a cluster for these tests only
	}
	for _, name := range []string{kubeconfigEnv, auditLogEnv, sharedEnv} {
		if err := os.Unsetenv(name); err != nil {
			panic(err) // no name is invalid
		}
	}
}

// shared is the cluster that all tests of one binary use.
type shared struct {
	kubeconfig string
	audit      *os.File // nil if unknown
	pid        int      // of the playground; 0 if unknown
	stop       func()   // nil if this binary did not start it
}

var startOnce = sync.OnceValues(startCluster)

func use(tb testing.TB) *shared {
	tb.Helper()
	if c := assignedTo(tb); c != nil {
		return c
	}
	c, err := startOnce()
	if err != nil {
		tb.Fatalf("cannot start the playground: %v", err)
	}
	return c
}

// Kubeconfig returns the path of a kubeconfig with administrator access to the cluster, which all tests of a
// binary share.
func Kubeconfig(tb testing.TB) string {
	tb.Helper()
	return use(tb).kubeconfig
}

// ClusterPID returns the ID of the process that runs the cluster, or 0 if this binary did not start it.
func ClusterPID(tb testing.TB) int {
	tb.Helper()
	return use(tb).pid
}

// Cluster returns administrator access to the cluster.
func Cluster(tb testing.TB) *rest.Config {
	tb.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", Kubeconfig(tb))
	if err != nil {
		tb.Fatal(err)
	}
	cfg.QPS = -1
	if cfg.WrapTransport, err = jitter(); err != nil {
		tb.Fatal(err)
	}
	return cfg
}

func startCluster() (*shared, error) {
	if file := os.Getenv(kubeconfigEnv); file != "" {
		c := &shared{kubeconfig: file}
		var err error
		if audit := os.Getenv(auditLogEnv); audit != "" {
			c.audit, err = os.Open(audit)
		}
		return c, err
	}
	return startAnother()
}

// started counts the clusters of this process.
var started atomic.Int32

func startAnother() (*shared, error) {
	// The name is unique to this process. The playground removes the file when it stops.
	c := &shared{kubeconfig: filepath.Join(os.TempDir(),
		fmt.Sprintf("sluice-test-%d-%d.kubeconfig", os.Getpid(), started.Add(1)))}
	audit := c.kubeconfig + ".audit"
	cluster, err := StartPlayground("cluster", "--kubeconfig", c.kubeconfig, "--audit-log", audit)
	if err != nil {
		return nil, err
	}
	c.pid, c.stop = cluster.PID, cluster.Stop
	if c.audit, err = os.Open(audit); err != nil {
		return nil, err
	}
	return c, os.Remove(audit) // both processes hold it open, so it does not outlive them
}
