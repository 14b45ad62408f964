package discover

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrl "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// enqueueDelay is how long after a change a namespace is reconciled, as workloads often change together.
const enqueueDelay = time.Second

// pollInterval is how often the namespace is read if discovery is limited to one namespace.
const pollInterval = time.Minute

// Register adds discovery to the manager, for one namespace, or for all if namespace is empty.
func Register(mgr manager.Manager, namespace string) error {
	d := &Discovery{Client: mgr.GetClient(), Namespaces: mgr.GetCache(), Workloads: mgr.GetAPIReader(),
		Recorder: mgr.GetEventRecorder("image-discovery")}
	c, err := controller.New("Discovery", mgr, controller.Options{MaxConcurrentReconciles: 1, Reconciler: d})
	if err != nil {
		return err
	}
	allowed := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return namespace == "" || o.GetName() == namespace || o.GetNamespace() == namespace
	})
	namespaces := source.Source(source.Kind(mgr.GetCache(),
		client.Object(metadata(corev1.SchemeGroupVersion.WithKind("Namespace"))), byNamespace, allowed, changed))
	if namespace != "" { // a Role can allow to read its namespace, but not to watch it
		d.Namespaces, d.PollInterval = mgr.GetAPIReader(), pollInterval
		namespaces = reconcile.NamedSource{Name: "namespace", Run: func(_ context.Context, q queue) error {
			q.Add(ctrl.Request{NamespacedName: types.NamespacedName{Name: namespace}})
			return nil
		}}
	}
	if err := c.Watch(namespaces); err != nil {
		return err
	}
	for _, o := range []client.Object{&imagev1.ImageRepository{}, &imagev1.ImagePolicy{}} {
		if err := c.Watch(source.Kind(mgr.GetCache(), o, byNamespace, allowed, changed)); err != nil {
			return err
		}
	}
	d.Watch = func(kind schema.GroupVersionKind) error {
		return c.Watch(source.Kind(mgr.GetCache(), client.Object(metadata(kind)), byNamespace, allowed, changed))
	}
	return nil
}

// byNamespace enqueues the namespace of a changed object.
var byNamespace = handler.Funcs{
	CreateFunc:  func(_ context.Context, e event.CreateEvent, q queue) { enqueue(e.Object, q) },
	UpdateFunc:  func(_ context.Context, e event.UpdateEvent, q queue) { enqueue(e.ObjectNew, q) },
	DeleteFunc:  func(_ context.Context, e event.DeleteEvent, q queue) { enqueue(e.Object, q) },
	GenericFunc: func(context.Context, event.GenericEvent, queue) {},
}

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

func enqueue(o client.Object, q queue) {
	name := o.GetNamespace()
	if name == "" { // a namespace itself
		name = o.GetName()
	}
	q.AddAfter(ctrl.Request{NamespacedName: types.NamespacedName{Name: name}}, enqueueDelay)
}

// changed ignores updates that only change the status.
var changed = guard.Predicate("comparing an object", predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld, e.ObjectNew
	return before.GetGeneration() != after.GetGeneration() || !maps.Equal(before.GetLabels(), after.GetLabels()) ||
		!maps.Equal(before.GetAnnotations(), after.GetAnnotations()) ||
		(before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil)
}})
