package alert

import (
	"context"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/api/notification/v1beta3"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/delivery"
	"github.com/sluice-gitops/sluice/internal/notify/provider"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// SendFailedReason is the reason of a Provider that could not send the last event it had to.
const SendFailedReason = "SendFailed"

// Sender sends what is to be delivered. It implements [delivery.Sender].
type Sender struct {
	Router   *Router
	Resolver *Resolver
	Health   *Health
}

// Send makes one try. The error is a fault, as [delivery.Sender] says.
func (s *Sender) Send(ctx context.Context, d delivery.Delivery) error {
	p := s.Router.provider(d.Provider)
	if p == nil {
		return fault.New(v1beta3.ValidationFailedReason, "Provider '%s' is gone", d.Provider).Final()
	}
	if p.Spec.Suspend {
		log.FromContext(ctx).V(1).Info("the Provider is suspended, the event is left out", "provider", d.Provider)
		return nil
	}
	try, cancel := context.WithTimeout(ctx, p.GetTimeout())
	defer cancel()
	err := s.send(try, p, d)
	if !errors.Is(ctx.Err(), context.Canceled) { // else it is the process that ends
		s.Health.report(d.Provider, err)
	}
	return err
}

func (s *Sender) send(ctx context.Context, p *v1beta3.Provider, d delivery.Delivery) error {
	sender, err := s.Resolver.Provider(ctx, p)
	if err != nil {
		// The event waits until the Provider is put right: the bounds of the queue end it, if nobody does.
		return fault.New(fault.Reason(err, v1beta3.ValidationFailedReason), "the Provider cannot be used").Because(err)
	}
	if p.Spec.CommitStatusExpr != "" {
		ctx = provider.WithAlert(ctx, s.Router.document(d.Alert))
	}
	if err := sender.Send(ctx, d.Event); err != nil {
		s.Resolver.Doubt(p)
		return err
	}
	return nil
}

// Health knows which Providers could not send the last event they had to. The controller of Providers tells
// it, once for each time that it changes.
type Health struct {
	Edges *reconcile.Edges

	mu      sync.Mutex
	failing map[types.NamespacedName]*fault.Fault
}

// report keeps what became of a try, and wakes the Provider if that is news.
func (h *Health) report(key types.NamespacedName, err error) {
	if h.note(key, err) {
		h.Edges.Enqueue(reconcile.Ref{GroupKind: ProviderGroupKind, NamespacedName: key})
	}
}

func (h *Health) note(key types.NamespacedName, err error) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.failing[key]
	if err == nil {
		delete(h.failing, key)
		return was != nil
	}
	if h.failing == nil {
		h.failing = map[types.NamespacedName]*fault.Fault{}
	}
	is := fault.As(err)
	if is == nil {
		is = fault.New(SendFailedReason, "the event was not sent").Because(err)
	}
	h.failing[key] = is
	// The causes of one failure may differ from try to try, as a time does to wait for.
	return was == nil || was.Reason != is.Reason || was.What != is.What
}

// of returns what is wrong with a Provider, or nil.
func (h *Health) of(key types.NamespacedName) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.failing[key]; f != nil {
		return f
	}
	return nil
}

// Forget is for a Provider that is gone, or that is another now.
func (h *Health) Forget(key types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.failing, key)
}
