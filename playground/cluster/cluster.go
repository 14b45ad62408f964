// Package cluster is a Kubernetes control plane in one process: etcd, the real kube-apiserver, the
// controllers that make a cluster feel alive, and simulated nodes on which pods become Running and Ready.
//
// Nothing is ever run in a pod. A pod behaves as its annotations ask:
//
//	playground.sluice.dev/fail: image-pull | crash-loop | pending | not-ready | job-failed
//	playground.sluice.dev/delay: 2s    the time until it is ready
//	playground.sluice.dev/log: text    the log of its containers; endless: one line without an end
//
// A namespace with the annotation playground.sluice.dev/abandoned is deleted in spite of the finalizers of custom
// resources in it, as their controllers are gone.
package cluster

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// startTime is how long each part may take to come up: machines of tests may be busy, or stand still for a while.
const startTime = 5 * time.Minute

// shutdownGrace is how long requests under way get when the cluster stops.
const shutdownGrace = time.Second

// Options of a cluster.
type Options struct {
	Dir      string // holds all state; kept and reused when it exists
	Port     int    // of the API server on the loopback address; 0 picks a free one
	Nodes    int    // how many nodes are simulated
	AuditLog string // file for the audit log, JSON lines at the metadata level; empty turns it off
}

// Cluster is a running control plane.
type Cluster struct {
	admin  *rest.Config
	failed chan error
	stop   []func() // of the parts that were started
}

// Start brings the control plane up and returns when it serves. Stop ends it.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	unlock, err := lock(dir)
	if err != nil {
		return nil, err
	}
	c := &Cluster{failed: make(chan error, 1), stop: []func(){unlock}}
	if err := c.start(ctx, dir, o); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// start starts the parts, each with what ends it. They end in the reverse order: the API server must still reach etcd.
func (c *Cluster) start(ctx context.Context, dir string, o Options) error {
	certs, err := loadCerts(filepath.Join(dir, "pki"))
	if err != nil {
		return fmt.Errorf("cannot make the certificates: %w", err)
	}
	etcd, err := startEtcd(ctx, filepath.Join(dir, "etcd"))
	if err != nil {
		return fmt.Errorf("cannot start etcd in %s: %w", dir, err)
	}
	c.stop = append(c.stop, etcd.stop)
	run, cancel := context.WithCancel(context.Background())
	c.stop = append(c.stop, cancel)
	server, err := startAPIServer(run, certs, etcd.endpoint, o, c.failed)
	if err != nil {
		return fmt.Errorf("cannot start the API server: %w", err)
	}
	c.stop = append(c.stop, func() {
		cancel()
		// It would wait a minute for the watches of clients.
		select {
		case <-server.done:
		case <-time.After(shutdownGrace):
		}
	})
	c.admin = server.config
	if err := server.waitReady(ctx, c.failed); err != nil {
		return fmt.Errorf("the API server did not become ready: %w", err)
	}
	if err := startControllers(run, named(c.admin, "controllers"), certs, etcd); err != nil {
		return fmt.Errorf("cannot start the controllers: %w", err)
	}
	if err := startSimulator(run, named(c.admin, "nodes"), o.Nodes); err != nil {
		return fmt.Errorf("cannot start the nodes: %w", err)
	}
	return c.waitDefaults(ctx)
}

// waitDefaults returns once a pod can be made in the default namespace, which takes its service account.
func (c *Cluster) waitDefaults(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(named(c.admin, "start"))
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, startTime, true,
		func(ctx context.Context) (bool, error) {
			_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
			return err == nil, nil
		})
	if err != nil {
		return fmt.Errorf("the default service account was not made: %w", err)
	}
	return nil
}

// named is access under a name that the audit log shows.
func named(cfg *rest.Config, part string) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = "playground-" + part
	return cfg
}

// lock keeps a directory for this process. The returned function gives it up.
func lock(dir string) (func(), error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is in use by another playground: stop it, or give another directory",
			dir), f.Close())
	}
	return func() { _ = f.Close() }, nil // closing gives it up
}

// Config gives access as cluster admin.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// Failed yields the error of a part that ended by itself.
func (c *Cluster) Failed() <-chan error { return c.failed }

// Stop ends all parts. What they hold is written when it returns; requests under way got a second.
func (c *Cluster) Stop() {
	for _, stop := range slices.Backward(c.stop) {
		stop()
	}
	c.stop = nil
}

// WriteKubeconfig writes an admin kubeconfig, readable by the owner only, in one step.
func (c *Cluster) WriteKubeconfig(file string) error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: playground
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: admin
  user:
    token: %s
contexts:
- name: playground
  context: {cluster: playground, user: admin}
current-context: playground
`, c.admin.Host, base64.StdEncoding.EncodeToString(c.admin.CAData),
		c.admin.BearerToken)
	tmp, err := os.CreateTemp(filepath.Dir(file), ".kubeconfig-*") // made with mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(text)
	if err := errors.Join(err, tmp.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	if err := os.Rename(tmp.Name(), file); err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}
