package delivery

import (
	"context"
	"errors"
	"fmt"

	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/listen"
)

// Endpoint runs a dispatcher with its metrics, and the HTTP endpoint for events of other programs. Every replica
// delivers the events that it accepts, also after it stopped to lead.
type Endpoint struct {
	*Dispatcher
	Address string                         // to listen on; empty for no HTTP endpoint
	Senders Senders                        // of the HTTP endpoint; nil accepts events of everyone
	Quota   int                            // events per second of one sender; 0: no limit
	Ready   func(ctx context.Context) bool // waits until events can be routed; optional
	// Listens is called when the HTTP endpoint accepts connections; optional.
	Listens func()
}

// Start runs until ctx is done.
func (e *Endpoint) Start(ctx context.Context) error {
	if err := metrics.Registry.Register(e.Dispatcher); err == nil { // only tests run two in a process
		defer metrics.Registry.Unregister(e.Dispatcher)
	}
	if e.Ready != nil && !e.Ready(ctx) {
		return nil // the process stops
	}
	if e.Address == "" {
		return e.Dispatcher.Start(ctx)
	}
	listener, err := listen.TCP(e.Address)
	if err != nil {
		return fmt.Errorf("cannot listen on --events-addr %s: %w", e.Address, err)
	}
	if e.Listens != nil {
		e.Listens()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	guard.Go("serving events", func() {
		defer cancel()
		server := ctrlmanager.Server{Name: "events", Listener: listener,
			Server: NewServer(e.Dispatcher, e.Senders, e.Quota)}
		served <- guard.Do("serving events", func() error { return server.Start(ctx) })
	})
	err = e.Dispatcher.Start(ctx)
	cancel()
	return errors.Join(err, <-served)
}
