package manager

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/api/notification/v1beta3"
	"github.com/sluice-gitops/sluice/internal/notify/alert"
	"github.com/sluice-gitops/sluice/internal/notify/bus"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// runAlerts reconciles Alerts and Providers, and makes the bus by which events come to them.
func runAlerts(ctx context.Context, mgr ctrlmanager.Manager, k *reconcile.Kernel, out *wayOut, recorder events.AnnotatedEventRecorder, o Options) (*notifications, error) {
	alone := o.NoCrossNamespaceRef || !o.WatchAllNamespaces
	health := &alert.Health{Edges: k.Edges}
	resolver := &alert.Resolver{Secrets: mgr.GetAPIReader(), Egress: o.forTenants(), Identities: out.identities, Clock: k.Clock}
	tell := &teller{mgr.GetCache(), recorder}
	router := &alert.Router{NoCrossNamespaceRefs: alone, Labels: labelsOf(mgr), Warn: tell.warn}

	options := o.bus()
	options.Router, options.Teller = router, tell
	options.Sender = &alert.Sender{Router: router, Resolver: resolver, Health: health}
	b := bus.New(options)
	router.Gone = b.Forget
	if err := router.Observe(ctx, mgr.GetCache()); err != nil {
		return nil, err
	}
	if err := reconcile.Register(mgr, k, reconcile.Kind[*v1beta3.Alert]{
		GroupKind:  alert.AlertGroupKind,
		New:        func() *v1beta3.Alert { return &v1beta3.Alert{} },
		Concurrent: o.Concurrent,
		Loose:      true,
		Step:       &alert.Alert{Client: mgr.GetClient(), NoCrossNamespaceRefs: alone},
	}); err != nil {
		return nil, err
	}
	if err := reconcile.Register(mgr, k, reconcile.Kind[*v1beta3.Provider]{
		GroupKind:  alert.ProviderGroupKind,
		New:        func() *v1beta3.Provider { return &v1beta3.Provider{} },
		Concurrent: o.Concurrent,
		Loose:      true,
		Step:       &alert.Provider{Resolver: resolver, Health: health, Retry: b.Retry},
	}); err != nil {
		return nil, err
	}
	return &notifications{Bus: b, address: o.EventsAddr, ready: router.Ready}, nil
}

// labelsOf finds the labels of objects in the cache, which has kinds that this process does not reconcile by their metadata.
func labelsOf(mgr ctrlmanager.Manager) alert.Labels {
	return func(ctx context.Context, kind string, key types.NamespacedName) labels.Set {
		mapping, err := mgr.GetRESTMapper().RESTMapping(schema.GroupKind{Group: notificationv1.GroupOf(kind), Kind: kind})
		if err != nil {
			return nil // there are none in this cluster
		}
		var obj client.Object = &metav1.PartialObjectMetadata{}
		if known, err := mgr.GetScheme().New(mapping.GroupVersionKind); err == nil {
			obj = known.(client.Object)
		} else {
			obj.GetObjectKind().SetGroupVersionKind(mapping.GroupVersionKind)
		}
		if err := mgr.GetCache().Get(ctx, key, obj); err != nil {
			return nil // it is gone, and nobody selects it
		}
		return obj.GetLabels()
	}
}

// teller writes what went wrong with notifications into events of their Alert and Provider. They are for the cluster only: nobody is notified of notifications.
type teller struct {
	reader   client.Reader // of the cache
	recorder events.AnnotatedEventRecorder
}

// Tell implements [bus.Teller].
func (t *teller) Tell(alertKey, provider types.NamespacedName, reason, message string) {
	p := &v1beta3.Provider{}
	if err := t.reader.Get(context.Background(), provider, p); err != nil {
		return // it is gone
	}
	t.recorder.AnnotatedEventf(p, nil, nil, corev1.EventTypeWarning, reason, "Notify", "Alert '%s': %s", alertKey, message)
}

// warn tells of an Alert what does not stop it.
func (t *teller) warn(a *v1beta3.Alert, message string) {
	t.recorder.AnnotatedEventf(a, nil, nil, corev1.EventTypeWarning, "Conflict", "Notify", "%s", message)
}
