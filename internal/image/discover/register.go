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
)

// settle is how long changes in a namespace are gathered before it is looked at: workloads come and go together.
const settle = time.Second

// reread is how often the namespace is read where there is but one.
const reread = time.Minute

// Register runs discovery under the manager. Only names a namespace that alone may ask; all may when it is empty.
func Register(mgr manager.Manager, only string) error {
	d := &Discovery{Client: mgr.GetClient(), Asking: mgr.GetCache(), Workloads: mgr.GetAPIReader(),
		Recorder: mgr.GetEventRecorder("image-discovery")}
	c, err := controller.New("Discovery", mgr, controller.Options{MaxConcurrentReconciles: 1, Reconciler: d})
	if err != nil {
		return err
	}
	allowed := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return only == "" || o.GetName() == only ||
			o.GetNamespace() == only
	})
	asking := source.Source(source.Kind(mgr.GetCache(),
		client.Object(metadata(corev1.SchemeGroupVersion.WithKind("Namespace"))), byNamespace, allowed, changed))
	if only != "" { // a Role may let its own namespace be read, but none be watched
		d.Asking, d.Again = mgr.GetAPIReader(), reread
		asking = source.Func(func(_ context.Context, q queue) error {
			q.Add(ctrl.Request{NamespacedName: types.NamespacedName{Name: only}})
			return nil
		})
	}
	if err := c.Watch(asking); err != nil {
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

// byNamespace wakes the namespace of what changed, a moment later.
var byNamespace = handler.Funcs{
	CreateFunc:  func(_ context.Context, e event.CreateEvent, q queue) { wake(e.Object, q) },
	UpdateFunc:  func(_ context.Context, e event.UpdateEvent, q queue) { wake(e.ObjectNew, q) },
	DeleteFunc:  func(_ context.Context, e event.DeleteEvent, q queue) { wake(e.Object, q) },
	GenericFunc: func(context.Context, event.GenericEvent, queue) {},
}

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

func wake(o client.Object, q queue) {
	name := o.GetNamespace()
	if name == "" { // a namespace itself
		name = o.GetName()
	}
	q.AddAfter(ctrl.Request{NamespacedName: types.NamespacedName{Name: name}}, settle)
}

// changed leaves out what only the status tells.
var changed = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld, e.ObjectNew
	return before.GetGeneration() != after.GetGeneration() || !maps.Equal(before.GetLabels(), after.GetLabels()) ||
		!maps.Equal(before.GetAnnotations(), after.GetAnnotations()) ||
		(before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil)
}}
