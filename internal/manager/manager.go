// Package manager runs the controllers of a process: it creates what they share and connects them. It holds no other
// logic.
package manager

import (
	"context"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/process/logging"
	"github.com/sluice-gitops/sluice/internal/process/metrics"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/process/storage"
)

// Run runs the enabled controllers until ctx ends.
func Run(ctx context.Context, cfg *rest.Config, o options.Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if err := logging.Set(o.LogLevel, o.LogEncoding); err != nil {
		return err
	}
	for _, warning := range o.Warnings() {
		log.Log.Info(warning)
	}
	guard.Libraries()
	guard.LimitMemory()
	if err := metrics.Register(collectors()); err != nil {
		return err
	}
	unlock, err := storage.Lock(o)
	if err != nil {
		return err
	}
	defer unlock()
	health, err := kubeclient.NewHealth(o.HealthAddr)
	if err != nil {
		return err
	}
	defer health.Close()
	p, err := newProcess(ctx, cfg, o, health)
	if err != nil && ctx.Err() != nil {
		return nil // the process was asked to stop while it started
	}
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.addControllers(ctx); err != nil {
		return err
	}
	if err := p.addMetrics(); err != nil {
		return err
	}
	if err := p.addUI(ctx, cfg); err != nil {
		return err
	}
	if err := p.addReport(ctx); err != nil {
		return err
	}
	if err := p.addMembership(cfg); err != nil {
		return err
	}
	return p.run(ctx)
}
