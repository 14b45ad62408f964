package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrl "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Finalizer is the one that these APIs have always carried, so that objects move between installations.
const Finalizer = "finalizers.fluxcd.io"

// defaultTimeout bounds a pass of an object that sets none.
const defaultTimeout = 5 * time.Minute

// Object is an API object of ours.
type Object interface {
	client.Object
	CommonStatus() *meta.Status
	Schedule() meta.Schedule
}

// Step is what a kind supplies: its domain.
type Step[T Object] interface {
	// References lists what the object builds on or waits for. A change of one of them wakes the object.
	References(obj T) []Ref
	// Reconcile makes the world as declared. It may set conditions of its own and status fields on the object; the
	// kernel writes them. It must not write the object itself.
	Reconcile(ctx context.Context, pass *Pass[T]) Outcome
	// Finalize undoes what the object made, before it goes. It must be idempotent.
	Finalize(ctx context.Context, obj T) error
}

// Pass is one reconcile of an object.
type Pass[T Object] struct {
	// Object may be changed freely: it is this pass's own copy.
	Object T
	// Requested tells that a person or a tool asked for this pass by annotation.
	Requested bool
	// UnderWay tells that the pass before left work that goes on, by the same spec, and that no gate stops
	// it: a step that is not admitted may bring that to its end.
	UnderWay bool
	// Stands is the revision that the object has, by the same spec, if the step says so: gates let it pass,
	// as it is no change.
	Stands string

	save   func(ctx context.Context, message string) error
	permit *permit
}

// Admit asks the gates whether the object may take up a revision. A step of a kind that gates hold asks
// before it takes up anything; an error ends its pass, by [Held] or [Failed]. A step asks once a pass, or
// again if the revision is another.
func (p *Pass[T]) Admit(revision string) error {
	err := p.permit.admit(revision)
	if err != nil && revision != "" && revision == p.Stands {
		return nil
	}
	return err
}

// Held tells whether gates hold the pass: nothing that it was not admitted to may be taken up.
func (p *Pass[T]) Held() bool { return len(p.permit.shut()) > 0 }

// Save writes the status now, as progress, ahead of the pass's one patch. It is for what must not be lost if the
// process is killed before the pass ends, such as the inventory of objects about to be created.
func (p *Pass[T]) Save(ctx context.Context, message string) error { return p.save(ctx, message) }

// Kernel holds what all kinds share.
type Kernel struct {
	Client client.Client
	Edges  *Edges
	Events Events
	Clock  clock.Clock
	Retry  Retry
	Gates  Gatekeeper // nil: there are no gates
}

// Kind describes a kind to the kernel.
type Kind[T Object] struct {
	GroupKind  schema.GroupKind
	New        func() T
	Step       Step[T]
	Concurrent int
	Sort       Sort   // what a closed gate does to objects of the kind
	Finalizer  string // of a kind that has always carried another one than [Finalizer]
	Loose      bool   // nothing outlives an object of the kind: it gets no finalizer, and goes without the controller
}

// Register starts reconciling a kind under the manager.
func Register[T Object](mgr manager.Manager, k *Kernel, kind Kind[T]) error {
	l := newLoop(k, kind)
	c, err := controller.New(kind.GroupKind.Kind, mgr, controller.Options{
		MaxConcurrentReconciles: kind.Concurrent,
		Reconciler:              l,
		LogConstructor: func(req *ctrl.Request) logr.Logger {
			logger := mgr.GetLogger().WithName(kind.GroupKind.Kind)
			if req != nil {
				logger = logger.WithValues("namespace", req.Namespace, "name", req.Name)
			}
			return logger
		},
	})
	if err != nil {
		return err
	}
	if err := c.Watch(source.Func(func(_ context.Context, q queue) error {
		k.Edges.Attach(kind.GroupKind, q)
		return nil
	})); err != nil {
		return err
	}
	if k.Gates != nil && kind.Sort != Ungated {
		if err := c.Watch(gatesKnown{k.Gates}); err != nil {
			return err
		}
	}
	return c.Watch(source.Kind(mgr.GetCache(), client.Object(kind.New()), &handler.EnqueueRequestForObject{}, asked))
}

// asked passes the events that ask for a reconcile: a new generation, a new request, a deletion, other
// labels, by which gates may select it, or another schedule or request of its own, which some kinds have in
// annotations. Our own status patches don't.
var asked = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
		request(e.ObjectOld) != request(e.ObjectNew) ||
		schedule(e.ObjectOld) != schedule(e.ObjectNew) ||
		!maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
		!maps.Equal(requests(e.ObjectOld), requests(e.ObjectNew)) ||
		e.ObjectNew.GetDeletionTimestamp() != nil && e.ObjectOld.GetDeletionTimestamp() == nil
}}

func schedule(obj client.Object) meta.Schedule {
	if o, ok := obj.(Object); ok {
		return o.Schedule()
	}
	return meta.Schedule{}
}

// requests are what a kind is asked by annotations of its own.
func requests(obj client.Object) map[string]string {
	if o, ok := obj.(interface{ Requests() map[string]string }); ok {
		return o.Requests()
	}
	return nil
}

func request(obj client.Object) string { return obj.GetAnnotations()[meta.ReconcileRequestAnnotation] }

// loop reconciles one kind.
type loop[T Object] struct {
	*Kernel
	Kind[T]
	tries   *tries
	written *written[T]
}

func newLoop[T Object](k *Kernel, kind Kind[T]) *loop[T] {
	kind.Finalizer = cmp.Or(kind.Finalizer, Finalizer)
	return &loop[T]{Kernel: k, Kind: kind, tries: newTries(), written: newWritten[T]()}
}

// Reconcile is one pass: load, delete or skip or step, one status patch, one event, requeue.
func (l *loop[T]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj, found, err := l.load(ctx, req)
	if err != nil || !found {
		return ctrl.Result{}, err
	}
	if !obj.GetDeletionTimestamp().IsZero() {
		return l.finalize(ctx, obj)
	}
	observeSuspended(l.GroupKind, obj)
	if obj.Schedule().Suspended {
		log.FromContext(ctx).V(1).Info("suspended, left alone")
		l.leave(obj)
		return ctrl.Result{}, nil
	}
	if finalizers := obj.GetFinalizers(); !l.Loose && controllerutil.AddFinalizer(obj, l.Finalizer) {
		if err := l.patchFinalizers(ctx, obj, finalizers); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	asked := request(obj)
	requested := asked != "" && asked != obj.CommonStatus().LastHandledReconcileAt
	permit := l.ask(obj, requested)

	start := l.Clock.Now()
	w := &writer[T]{loop: l, before: obj.DeepCopyObject().(T), base: obj.DeepCopyObject().(T)}
	outcome := l.step(ctx, &Pass[T]{
		Object: obj, Requested: requested, permit: permit, UnderWay: underWay(obj) && permit.finishes(),
		save: func(ctx context.Context, message string) error {
			progress(obj, message)
			return w.write(ctx, obj)
		},
	})
	outcome = l.explain(outcome, permit)
	conclude(obj, outcome)
	l.tell(obj, permit, outcome)
	if asked != "" {
		obj.CommonStatus().LastHandledReconcileAt = asked
	}
	if err := w.write(ctx, obj); err != nil {
		if ctx.Err() != nil {
			return ctrl.Result{}, nil // the process is stopping: the next one goes on from what was written
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	l.emitGates(obj, w.before, outcome)
	l.emit(obj, w.before, outcome)
	observePass(l.GroupKind, obj, l.Clock.Since(start))
	l.logOutcome(ctx, outcome)
	if permit.again(l.Sort, outcome) {
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil
	}
	return ctrl.Result{RequeueAfter: l.requeue(obj, outcome)}, nil
}

// step runs the domain step under its deadline; a panic becomes a stalled outcome that is still retried.
func (l *loop[T]) step(ctx context.Context, pass *Pass[T]) (o Outcome) {
	ctx, cancel := withTimeout(ctx, pass.Object)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			log.FromContext(ctx).Error(fmt.Errorf("panic: %v", p), "the step panicked", "stack", string(debug.Stack()))
			o = Failed(fault.New(ReasonFailed, "internal error while reconciling").
				WithHint("This is a bug in Sluice: please report it with the controller's log. The object is retried").
				Final())
			o.err = errPanic
		}
	}()
	return l.Step.Reconcile(ctx, pass)
}

func withTimeout(ctx context.Context, obj Object) (context.Context, context.CancelFunc) {
	timeout := obj.Schedule().Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	return context.WithTimeout(ctx, timeout)
}

func (l *loop[T]) finalize(ctx context.Context, obj T) (ctrl.Result, error) {
	l.leave(obj) // no gate holds a deletion
	if controllerutil.ContainsFinalizer(obj, l.Finalizer) {
		w := &writer[T]{loop: l, before: obj.DeepCopyObject().(T), base: obj.DeepCopyObject().(T)}
		bounded, cancel := withTimeout(ctx, obj)
		err := l.Step.Finalize(bounded, obj)
		cancel()
		if err != nil {
			outcome := Failed(err)
			conclude(obj, outcome)
			if err := w.write(ctx, obj); err != nil {
				return ctrl.Result{}, client.IgnoreNotFound(err)
			}
			l.emit(obj, w.before, outcome)
			l.logOutcome(ctx, outcome)
			return ctrl.Result{RequeueAfter: l.tries.next(client.ObjectKeyFromObject(obj), l.Retry, 0)}, nil
		}
		finalizers := slices.Clone(obj.GetFinalizers())
		controllerutil.RemoveFinalizer(obj, l.Finalizer)
		if err := l.patchFinalizers(ctx, obj, finalizers); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
	}
	l.forget(obj)
	return ctrl.Result{}, nil
}

func (l *loop[T]) forget(obj T) {
	key := client.ObjectKeyFromObject(obj)
	l.Edges.Set(l.ref(obj), nil)
	l.tries.reset(key)
	l.written.forget(key)
	l.leave(obj)
	forgetMetrics(l.GroupKind, key)
}

// requeue says when the object is due again if no edge wakes it before.
func (l *loop[T]) requeue(obj T, o Outcome) time.Duration {
	s, key := obj.Schedule(), client.ObjectKeyFromObject(obj)
	if o.state != failed && o.err == nil {
		l.tries.reset(key)
	}
	switch {
	case o.state == progressing:
		return o.after
	case o.state == failed && o.after > 0:
		return o.after
	case o.state == failed && s.RetryInterval > 0:
		return l.Retry.jitter(s.RetryInterval)
	case o.state == failed, errors.Is(o.err, errPanic):
		return l.tries.next(key, l.Retry, s.Interval)
	default:
		return l.Retry.jitter(s.Interval)
	}
}

func (l *loop[T]) ref(obj T) Ref { return RefTo(l.GroupKind, obj.GetNamespace(), obj.GetName()) }

// emit records one event per transition of Ready or piece of news, and the outcome's notes.
func (l *loop[T]) emit(obj, before T, o Outcome) {
	for _, n := range o.notes {
		l.Events.Emit(l.GroupKind.Group, obj,
			Event{Type: n.kind, Reason: n.reason, Message: n.message, Metadata: o.metadata})
	}
	was := apimeta.FindStatusCondition(before.CommonStatus().Conditions, TypeReady)
	is := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, TypeReady)
	if is == nil || o.news == "" && was != nil && was.Status == is.Status && was.Reason == is.Reason &&
		was.Message == is.Message {
		return
	}
	t := normal
	if is.Status == metav1.ConditionFalse && o.state != waiting {
		t = warning
	}
	minor := o.quiet && was != nil && was.Status == metav1.ConditionTrue && is.Status == metav1.ConditionTrue
	l.Events.Emit(l.GroupKind.Group, obj, Event{t, cmp.Or(o.news, is.Reason), is.Message, o.metadata, minor})
}

func (l *loop[T]) logOutcome(ctx context.Context, o Outcome) {
	logger := log.FromContext(ctx)
	for _, n := range o.notes {
		logger.Info(n.message, "reason", n.reason)
	}
	switch o.state {
	case failed, stalled:
		logger.Error(errors.New(o.message), "failed", "reason", o.reason)
	default:
		logger.V(1).Info("done", "reason", o.reason, "message", o.message)
	}
}

func (l *loop[T]) load(ctx context.Context, req ctrl.Request) (T, bool, error) {
	obj := l.New()
	err := l.Client.Get(ctx, req.NamespacedName, obj)
	if apierrors.IsNotFound(err) {
		obj.SetNamespace(req.Namespace)
		obj.SetName(req.Name)
		l.forget(obj)
		return obj, false, nil
	}
	if err != nil {
		return obj, false, err
	}
	return l.written.newest(obj), true, nil
}
