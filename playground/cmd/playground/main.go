// Command playground is what a newcomer and a test need instead of a cluster: a control plane in a box, a git
// server, an OCI registry and an S3 server.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "playground",
		Short:         "A Kubernetes control plane in a box, and the peers that Sluice talks to",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(clusterCommand(), gitCommand(), registryCommand(), s3Command(), demoCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1) // the signal handler needs no undoing at exit
	}
}
