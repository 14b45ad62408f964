// Command sluice is the controllers and the command line of Sluice.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // time zones for gates where the system has none, as in the container image

	"github.com/sluice-gitops/sluice/internal/cli"
	"github.com/sluice-gitops/sluice/internal/helm/render"
)

func main() {
	render.RunChild() // does not return in a process that renders charts
	os.Exit(run(os.Args[1:]))
}

// run runs a command and returns its exit code.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	stderr := os.Stderr
	if len(args) > 0 && args[0] == "controller" { // it builds the same sources again and again
		restore, err := filterStderr()
		if err != nil {
			fmt.Fprintf(stderr, "Error: cannot filter the standard error: %v\n", err)
			return 1
		}
		defer restore()
	}
	return cli.Main(ctx, args, os.Stdin, os.Stdout, stderr)
}
