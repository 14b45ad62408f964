package alert

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/log"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/notify/delivery"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Sender sends deliveries to their Providers. It implements [delivery.Sender].
type Sender struct {
	Router   *Router
	Resolver *Resolver
	Health   *Health
}

// Send makes one attempt. The error is a fault, see [delivery.Sender].
func (s *Sender) Send(ctx context.Context, d delivery.Delivery) error {
	p := s.Router.provider(d.Provider)
	if p == nil {
		return fault.New(notificationv1.ValidationFailedReason, "Provider '%s' not found", d.Provider).Final()
	}
	if p.Spec.Suspend {
		log.FromContext(ctx).V(1).Info("Provider is suspended, event skipped", "provider", d.Provider)
		return nil
	}
	sendCtx, cancel := context.WithTimeout(guard.WithOwner(ctx, p.Namespace), p.GetTimeout())
	defer cancel()
	err := s.send(sendCtx, p, d)
	if !errors.Is(ctx.Err(), context.Canceled) { // canceled: the process ends
		s.Health.Report(d.Provider, err)
	}
	return err
}

func (s *Sender) send(ctx context.Context, p *notificationv1.Provider, d delivery.Delivery) error {
	sender, err := s.Resolver.Provider(ctx, p)
	if err != nil {
		// Not terminal: the event waits until the Provider is fixed, within the bounds of the queue.
		return fault.New(fault.Reason(err, notificationv1.ValidationFailedReason), "the Provider cannot be used").
			Because(err)
	}
	if p.Spec.CommitStatusExpr != "" {
		d.Event.Alert = s.Router.document(d.Alert)
	}
	if err := sender.Send(ctx, d.Event); err != nil {
		s.Resolver.Invalidate(p)
		return err
	}
	return nil
}
