// Package cluster is a Kubernetes control plane in one process: etcd, the real kube-apiserver, the controllers that make
// a cluster feel alive, and simulated nodes on which pods become Running and Ready.
//
// Nothing is ever run in a pod. A pod behaves as its annotations ask:
//
//	playground.sluice.dev/fail: image-pull | crash-loop | pending | not-ready | job-failed
//	playground.sluice.dev/delay: 2s    the time until it is ready
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
)

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
	cancel context.CancelFunc
	admin  *rest.Config
	failed chan error
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
	pki, err := loadPKI(filepath.Join(dir, "pki"))
	if err != nil {
		return nil, fmt.Errorf("cannot make the certificates: %w", err)
	}
	etcd, err := startEtcd(ctx, filepath.Join(dir, "etcd"))
	if err != nil {
		return nil, fmt.Errorf("cannot start etcd in %s: %w", dir, err)
	}
	// The parts stop in the reverse order: the API server must still reach etcd while it ends.
	run, cancel := context.WithCancel(context.Background())
	c := &Cluster{failed: make(chan error, 1)}
	server, err := startAPIServer(run, pki, etcd.endpoint, o, c.failed)
	c.cancel = func() {
		cancel()
		if server != nil {
			// It waits a minute for open watches; their clients are going as well.
			select {
			case <-server.done:
			case <-time.After(shutdownGrace):
			}
		}
		etcd.stop()
	}
	if err != nil {
		c.cancel()
		return nil, fmt.Errorf("cannot start the API server: %w", err)
	}
	c.admin = server.config
	if err := server.waitReady(ctx, c.failed); err != nil {
		c.cancel()
		return nil, err
	}
	if err := startControllers(run, server.config, pki.ca.cert); err != nil {
		c.cancel()
		return nil, fmt.Errorf("cannot start the controllers: %w", err)
	}
	if err := startNodes(run, server.config, o.Nodes); err != nil {
		c.cancel()
		return nil, fmt.Errorf("cannot start the nodes: %w", err)
	}
	return c, nil
}

// Config gives access as cluster admin.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// Failed yields the error of a part that ended by itself.
func (c *Cluster) Failed() <-chan error { return c.failed }

// Stop ends all parts and waits for them.
func (c *Cluster) Stop() { c.cancel() }

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
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: playground
  context: {cluster: playground, user: admin}
current-context: playground
`, c.admin.Host, b64(c.admin.CAData), b64(c.admin.CertData), b64(c.admin.KeyData))
	tmp, err := os.CreateTemp(filepath.Dir(file), ".kubeconfig-*") // made with mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(text)
	if err := errors.Join(err, tmp.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return os.Rename(tmp.Name(), file)
}
