package discover

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrl "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/reconcile/shard"
)

// enqueueDelay is how long after a change a namespace is reconciled, as workloads often change together.
const enqueueDelay = time.Second

// pollInterval is how often the namespace is read if discovery is limited to one namespace.
const pollInterval = time.Minute

// Replica is where discovery runs if replicas share all objects: on the one that has the key.
type Replica struct {
	Shards *shard.Shards // nil if there is one process
	Key    string
}

// discovers reports whether discovery runs in this process.
func (r Replica) discovers() bool { return r.Shards == nil || r.Shards.Owns(r.Key) }

// moved returns a source that enqueues all namespaces when discovery moves to this replica.
func (r Replica) moved(cache client.Reader) source.Source {
	return reconcile.NamedSource{Name: "replicas", Run: func(ctx context.Context, q queue) error {
		r.Shards.Observe(func(changed func(string) bool) {
			if !changed(r.Key) || !r.discovers() {
				return
			}
			guard.Go("enqueuing namespaces", func() {
				all := &metav1.PartialObjectMetadataList{}
				all.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
				if err := cache.List(ctx, all); err != nil {
					log.FromContext(ctx).Error(err, "cannot list namespaces for the discovery of images")
				}
				for i := range all.Items {
					enqueue(&all.Items[i], q)
				}
			})
		})
		return nil
	}}
}

// Register adds discovery to the manager, for one namespace, or for all if namespace is empty.
func Register(mgr manager.Manager, namespace string, replica Replica) error {
	d := &Discovery{Client: mgr.GetClient(), Namespaces: mgr.GetCache(), Workloads: mgr.GetAPIReader(),
		Recorder: mgr.GetEventRecorder("image-discovery"), Replica: replica}
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
	if replica.Shards != nil && namespace == "" {
		if err := c.Watch(replica.moved(mgr.GetCache())); err != nil {
			return err
		}
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
