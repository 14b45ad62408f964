// Command sluice is the controllers and the command line of Sluice.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/sluice-gitops/sluice/internal/cli"
	"github.com/sluice-gitops/sluice/internal/helm/render"
)

func main() {
	render.RunChild() // does not return in a process that renders charts
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
