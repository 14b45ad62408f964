package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// server is a peer of Sluice that runs until it is closed.
type server interface {
	Ended() <-chan error // yields the error of one that ended by itself
	Close() error
}

// serve prints where a server is and "ready", and closes it when the context ends. An address that is empty is none.
func serve(ctx context.Context, s server, addresses ...string) (err error) {
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, address := range addresses {
		if address != "" {
			fmt.Println(address)
		}
	}
	fmt.Println("ready")
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.Ended():
		return err
	}
}

// parentWatch makes the process end when its standard input does, so that a killed test leaves none behind.
const parentWatch = "PLAYGROUND_PARENT_WATCH"

// withParent ends the context when standard input ends, if the environment asks for it.
func withParent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if os.Getenv(parentWatch) != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent, however it ends
			cancel()
		}()
	}
	return ctx, cancel
}

// untilStopped makes a command of what runs until the process, or its parent, is to end.
func untilStopped(run func(ctx context.Context) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := withParent(cmd.Context())
		defer cancel()
		return run(ctx)
	}
}

// require marks flags of a command that was just made.
func require(c *cobra.Command, flags ...string) {
	for _, name := range flags {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err) // there is no such flag
		}
	}
}
