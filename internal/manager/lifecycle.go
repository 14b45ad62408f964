package manager

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
)

const (
	// drainTime is how long a replica serves after it was asked to stop. Others have the lease before, and the cluster
	// has stopped to send requests here.
	drainTime = 5 * time.Second
	// closeTime bounds how long requests in flight may take after that.
	closeTime = 8 * time.Second
)

// serve adds what a replica serves to others, whether it leads or not. It starts before the controllers, and ends after
// them.
func (p *process) serve(name string, run func(context.Context) error) {
	p.services = append(p.services, func(ctx context.Context) (err error) {
		guard.Keep(ctx, name, func() { err = run(ctx) })
		return err
	})
}

// serveHTTP adds an HTTP server.
func (p *process) serveHTTP(name string, listener net.Listener, server *http.Server) {
	s := &ctrlmanager.Server{Name: name, Listener: listener, Server: server, ShutdownTimeout: ptr.To(closeTime)}
	p.serve("serving "+name, s.Start)
}

// run runs the controllers until ctx ends, and the services somewhat longer: a replica that stops first gives up its
// lease, and serves until the cluster sends requests to others.
func (p *process) run(asked context.Context) error {
	ctx, fail := context.WithCancel(asked)
	defer fail()
	serving, stopServing := context.WithCancel(log.IntoContext(context.WithoutCancel(ctx), log.Log.V(1)))
	defer stopServing()
	services := guard.NewGroup("serving")
	for _, run := range p.services {
		services.Go(func() error {
			err := run(serving)
			if err != nil {
				fail() // the process ends
			}
			return err
		})
	}
	services.Go(func() error {
		guard.ReleaseMemory(serving)
		return nil
	})
	p.health.Set("controllers", "")
	drained := make(chan (<-chan time.Time), 1)
	guard.AfterDone(ctx, "stopping", func() {
		p.health.Set("controllers", "they are stopping")
		drained <- time.After(drainTime)
	})
	leave := p.join()
	err := errors.Join(p.mgr.Start(ctx), leave())
	if err == nil && asked.Err() != nil && p.sharesArtifacts() {
		<-<-drained
	}
	stopServing()
	return errors.Join(err, services.Wait())
}

// join makes the process a replica, if it shares objects. The function that it returns ends that, after the controllers
// have ended, so that another replica has its objects at once.
func (p *process) join() (leave func() error) {
	if p.membership == nil {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	replica := guard.NewGroup("taking part as a replica")
	replica.Go(func() error { return p.membership.Run(ctx) })
	return func() error {
		cancel()
		return replica.Wait()
	}
}

// sharesArtifacts reports whether other replicas may have what this one serves.
func (p *process) sharesArtifacts() bool {
	return p.UsesLeases() && p.Backend != (artifact.S3Options{})
}

// leads reports whether this process reconciles.
func (p *process) leads() bool {
	select {
	case <-p.mgr.Elected():
		return true
	default:
		return false
	}
}
