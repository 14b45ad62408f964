// Command sluice is the controllers and the command line of Sluice.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // time zones for gates where the system has none, as in the container image

	"github.com/sluice-gitops/sluice/internal/cli"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

// run runs a command and returns its exit code.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return cli.Main(ctx, args, os.Stdin, os.Stdout, os.Stderr)
}
