package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/playground/cluster"
)

func clusterCommand() *cobra.Command {
	var o cluster.Options
	var kubeconfig string
	c := &cobra.Command{
		Use:   "cluster --kubeconfig FILE",
		Short: "Run etcd, the real kube-apiserver, controllers and simulated nodes in this process",
		Example: `  playground cluster --kubeconfig /tmp/playground.kubeconfig
  playground cluster --kubeconfig kc --dir state --port 6443`,
		Args: cobra.NoArgs,
		RunE: untilStopped(func(ctx context.Context) error { return runCluster(ctx, kubeconfig, o) }),
	}
	f := c.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "file to write the admin kubeconfig to")
	f.StringVar(&o.Dir, "dir", "", "directory to keep the state in (default: temporary, removed at the end)")
	f.IntVar(&o.Port, "port", 0, "port of the API server on the loopback address (default: a free one)")
	f.IntVar(&o.Nodes, "nodes", 3, "how many nodes are simulated")
	f.StringVar(&o.AuditLog, "audit-log", "", "file for the audit log, JSON lines")
	require(c, "kubeconfig")
	return c
}

func runCluster(ctx context.Context, kubeconfig string, o cluster.Options) (err error) {
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "playground-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return err
	}
	logs, err := os.OpenFile(filepath.Join(o.Dir, "playground.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logs.Close() // a log's end
	if err := quiet(logs); err != nil {
		return err
	}
	keepGarbage()
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return err
	}
	defer c.Stop()
	if err := c.WriteKubeconfig(kubeconfig); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(kubeconfig)) }() // it leads nowhere from then on
	fmt.Println("ready")
	select {
	case <-ctx.Done():
		return nil
	case err := <-c.Failed():
		return err
	}
}

// garbage is how much garbage there may be, in percent of what is in use.
const garbage = 300

// keepGarbage lets garbage be collected less often than by default: most of the memory of a control plane is
// short-lived, and collecting it would take a third of the processor time. GOGC goes before it.
func keepGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
}
