package manager

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/api/notification/v1beta3"
	"github.com/sluice-gitops/sluice/internal/notify/alert"
	"github.com/sluice-gitops/sluice/internal/notify/delivery"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// lookupTime bounds how long the labels of an object are looked for, when its kind is watched for the first time.
const lookupTime = 10 * time.Second

// alerts decide who hears of events, and send them.
type alerts struct {
	router *alert.Router
	sender *alert.Sender
}

func (p *process) newAlerts() *alerts {
	router := &alert.Router{
		NoCrossNamespaceRefs: p.noCrossNamespaceRefs(),
		Labels:               labelsIn(p.mgr),
		Warn: func(a *v1beta3.Alert, message string) {
			p.kernel.Events.Emit(alert.AlertGroupKind.Group, a,
				reconcile.Event{Type: corev1.EventTypeWarning, Reason: "MetadataConflict", Message: message})
		},
	}
	return &alerts{router, &alert.Sender{
		Router: router,
		Resolver: &alert.Resolver{
			Secrets: p.mgr.GetAPIReader(), Egress: p.forTenants(), Identities: p.out.Identities, Clock: p.clock(),
		},
		Health: &alert.Health{Edges: p.kernel.Edges},
	}}
}

// runAlerts reconciles Alerts and Providers.
func (p *process) runAlerts(ctx context.Context, a *alerts, d *delivery.Dispatcher) error {
	a.router.Gone = func(provider types.NamespacedName) {
		d.Forget(provider)
		a.sender.Health.Forget(provider)
	}
	if err := a.router.Observe(ctx, p.mgr.GetCache()); err != nil {
		return err
	}
	never := func(_, _ *v1beta3.Provider) bool { return false } // an Alert asks only whether its Provider is there
	if err := reconcile.Observe(ctx, p.kernel.Edges, p.mgr.GetCache(), alert.ProviderGroupKind, &v1beta3.Provider{},
		never); err != nil {
		return err
	}
	if err := reconcile.Register(p.mgr, p.kernel, reconcile.Kind[*v1beta3.Alert]{
		GroupKind:   alert.AlertGroupKind,
		New:         func() *v1beta3.Alert { return &v1beta3.Alert{} },
		Concurrent:  p.Concurrent,
		NoFinalizer: true,
		Step:        &alert.Alert{Client: p.mgr.GetClient(), NoCrossNamespaceRefs: a.router.NoCrossNamespaceRefs},
	}); err != nil {
		return err
	}
	return reconcile.Register(p.mgr, p.kernel, reconcile.Kind[*v1beta3.Provider]{
		GroupKind:   alert.ProviderGroupKind,
		New:         func() *v1beta3.Provider { return &v1beta3.Provider{} },
		Concurrent:  p.Concurrent,
		NoFinalizer: true,
		Step:        &alert.Provider{Resolver: a.sender.Resolver, Health: a.sender.Health, Retry: d.Retry},
	})
}

// labelsIn reads labels from the cache: from that of a kind's controller where the scheme knows the kind,
// which has an object as it was when it was reconciled, else from one of metadata alone.
func labelsIn(mgr ctrlmanager.Manager) alert.Labels {
	return func(ctx context.Context, kind string, key types.NamespacedName) labels.Set {
		mapping, err := mgr.GetRESTMapper().RESTMapping(schema.GroupKind{Group: notificationv1.GroupOf(kind),
			Kind: kind})
		if err != nil {
			return nil // it is not installed
		}
		var obj client.Object
		if known, err := mgr.GetScheme().New(mapping.GroupVersionKind); err == nil {
			obj, _ = known.(client.Object)
		}
		if obj == nil {
			metadata := &metav1.PartialObjectMetadata{}
			metadata.SetGroupVersionKind(mapping.GroupVersionKind)
			obj = metadata
		}
		ctx, cancel := context.WithTimeout(ctx, lookupTime)
		defer cancel()
		if err := mgr.GetCache().Get(ctx, key, obj); err != nil {
			return nil
		}
		return obj.GetLabels()
	}
}
