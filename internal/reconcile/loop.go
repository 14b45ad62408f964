package reconcile

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrl "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/resourceversion"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/reconcile/shard"
	"github.com/sluice-gitops/sluice/internal/text/explain"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// loop reconciles one kind.
type loop[T Object] struct {
	*Kernel
	Kind[T]
	failures *failureCounter
	known    failureLog
	retries  retryBudgets
	waits    waits
	writes   *writeCache[T]

	gateFields gateFields
}

func newLoop[T Object](k *Kernel, kind Kind[T]) *loop[T] {
	kind.Finalizer = cmp.Or(kind.Finalizer, Finalizer)
	return &loop[T]{Kernel: k, Kind: kind, failures: newFailureCounter(), writes: newWriteCache[T]()}
}

// Reconcile runs one pass. If a pass fails while the process stops, nothing is reported: the next process runs it.
func (l *loop[T]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := l.reconcile(ctx, req)
	if err != nil && ctx.Err() != nil {
		return ctrl.Result{}, nil
	}
	return result, err
}

// reconcile loads the object, runs the step (or finalizes, or skips a suspended object), patches the status, emits
// events, and says when to run again.
func (l *loop[T]) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx = guard.WithOwner(ctx, req.Namespace)
	obj, found, err := l.load(ctx, req)
	if err != nil || !found {
		return ctrl.Result{}, err
	}
	if l.LeftTo != nil && l.LeftTo(ctx) != "" {
		l.leave(obj)
		return ctrl.Result{RequeueAfter: l.Retry.jitter(leftInterval)}, nil
	}
	ctx, obj, end, ok, err := l.take(ctx, obj)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !ok {
		l.leave(obj)
		return ctrl.Result{}, nil
	}
	defer end()
	work, wait, deaths := l.Suspects.Begin(l.nameOf(req.NamespacedName))
	if wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, l.reportSuspect(ctx, obj, deaths, wait)
	}
	defer work.Done()
	ctx = guard.WithWork(ctx, work)
	if !obj.GetDeletionTimestamp().IsZero() {
		return l.finalize(ctx, obj)
	}
	isNews := observeSuspended(l.GroupKind, obj)
	if obj.Schedule().Suspended {
		if l.Info.set(l.ref(obj), obj); isNews && l.DisabledReason != "" {
			l.Events.Emit(l.GroupKind.Group, obj, Event{Type: normal, Reason: l.DisabledReason,
				Message: "Reconciliation is disabled until the object is resumed"})
		}
		log.FromContext(ctx).V(1).Info("skipped: the object is suspended")
		l.clearWaiting(obj)
		return ctrl.Result{}, nil
	}
	obj, result, known := l.withGates(ctx, obj)
	if !known {
		return result, nil
	}
	if finalizers := obj.GetFinalizers(); !l.NoFinalizer && controllerutil.AddFinalizer(obj, l.Finalizer) {
		if err := l.patchFinalizers(ctx, obj, finalizers); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	return l.pass(ctx, obj)
}

// leftInterval is how often a kind is checked that another controller reconciles.
const leftInterval = 30 * time.Second

// nameOf returns the name of an object for the markers of objects in work.
func (l *loop[T]) nameOf(key types.NamespacedName) string {
	return Ref{l.GroupKind, key}.ShardKey()
}

// suspectReport is the wait of a suspect from which its status says so.
const suspectReport = 5 * time.Second

// reportSuspect reports that an object waits because processes died while they worked on it. Short waits are only
// logged.
func (l *loop[T]) reportSuspect(ctx context.Context, obj T, deaths int, wait time.Duration) error {
	log.FromContext(ctx).Info("the controller ended without notice during work on this object; it is tried later, "+
		"while no other such object is", "deaths", deaths, "wait", wait.String())
	if wait < suspectReport || obj.Schedule().Suspended {
		return nil
	}
	w := newStatusWriter(l, obj)
	outcome := Failed(fault.New(ReasonSuspect,
		"the controller ended without notice %d times during work on this object", deaths).
		WithHint("It is tried again later. Check whether its content is very large, and the memory limit of the " +
			"controller"))
	setConditions(obj, outcome)
	if err := w.write(ctx, obj); err != nil {
		return client.IgnoreNotFound(err)
	}
	l.emit(obj, w.before, outcome)
	return nil
}

// pass runs the step of an object and writes what it returned. A success is emitted before it is written: if the
// process is killed in between, the next one emits it again, instead of never. A failure is emitted after it was
// written, since the reason may be that nothing can be written, and it lasts until a later pass reports it.
func (l *loop[T]) pass(ctx context.Context, obj T) (ctrl.Result, error) {
	request := requestedAt(obj)
	requested := request != "" && request != obj.CommonStatus().LastHandledReconcileAt
	start := l.Clock.Now()
	ctx, traced := l.Tracer.Start(ctx, l.Clock.Now)
	if requested {
		traced.Asked(request)
		ctx = resourceversion.WithCurrent(ctx)
	}
	w := newStatusWriter(l, obj)
	var admission *admission
	var outcome Outcome
	unknown := guard.DoContext(ctx, "asking gates", func() error {
		admission = l.admissionOf(obj, requested)
		return nil
	})
	if unknown != nil {
		outcome = panicked(unknown) // the step does not run: gates may be closed
	} else {
		outcome = l.runStep(ctx, &Pass[T]{Object: obj, Requested: requested, admission: admission}, w)
	}
	outcome = l.linked(outcome)
	setConditions(obj, outcome)
	if unknown == nil {
		l.reportGates(obj, admission, outcome)
	}
	if request != "" {
		obj.CommonStatus().LastHandledReconcileAt = request
	}
	isFirst := outcome.state == ready && ctx.Err() == nil
	if isFirst {
		l.emit(obj, w.before, outcome)
	}
	if err := w.write(ctx, obj); err != nil {
		if ctx.Err() != nil || errors.Is(err, shard.ErrMoved) {
			return ctrl.Result{}, nil // the next process, or the next replica, continues from the written status
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	l.tellGates(obj, admission)
	l.emitGates(obj, w.before, outcome)
	if !isFirst {
		l.emit(obj, w.before, outcome)
	}
	observePass(l.GroupKind, obj, l.Clock.Since(start))
	l.Info.set(l.ref(obj), obj)
	isNews := l.logOutcome(ctx, obj, w.before, outcome, l.Clock.Since(start))
	l.trace(ctx, traced, obj, w.before, outcome, isNews)
	if admission.requiresAnotherPass(l.GateBehavior, outcome) {
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil
	}
	return ctrl.Result{RequeueAfter: l.requeueAfter(obj, outcome)}, nil
}

// runStep runs the step, and records in the status which revision the gates let through.
func (l *loop[T]) runStep(ctx context.Context, pass *Pass[T], w *statusWriter[T]) Outcome {
	obj := pass.Object
	pass.admitted, pass.seals = l.admittedOf(obj), l.Seals
	dropUnsealed(obj, pass.admitted)
	pass.wasReverted = revertedOf(obj)
	if pass.admission != nil && pass.admitted != nil {
		pass.admission.object.Taken = pass.admitted.Revision
	}
	pass.InProgress = isInProgress(obj) && pass.admission.allowsProgress() && pass.admitted != nil &&
		pass.admitted.Generation == obj.GetGeneration()
	pass.save = func(ctx context.Context, message string) error {
		setProgressing(obj, message)
		l.sealAdmitted(pass, Progressing(0, ""))
		return w.write(ctx, obj)
	}
	outcome := l.step(ctx, pass)
	if outcome.endsWithAdmitted() {
		l.sealAdmitted(pass, outcome)
	}
	if outcome.state == held {
		outcome.reason, outcome.message = pass.admission.held[0].Reason(), l.gateMessage(pass.admission)
	}
	return outcome
}

// step runs the step of the kind under the object's timeout. A panic becomes a stalled outcome that is retried.
func (l *loop[T]) step(ctx context.Context, pass *Pass[T]) (o Outcome) {
	ctx, cancel := withTimeout(ctx, pass.Object)
	defer cancel()
	if problems := meta.InvalidSpec(pass.Object); len(problems) > 0 {
		return Failed(fault.New(meta.InvalidSpecReason, "the spec cannot be read: %s", strings.Join(problems, "; ")).
			WithHint("Correct these fields; the object is not reconciled until then").Final())
	}
	if err := guard.DoContext(ctx, "reconciling", func() error {
		o = l.Step.Reconcile(ctx, pass)
		return nil
	}); err != nil {
		return panicked(err)
	}
	return o
}

// panicked returns the outcome of a pass that panicked: the object is Stalled, but is retried.
func panicked(err error) Outcome {
	o := Failed(fault.New(ReasonFailed, "%s", fault.As(err).What).
		WithHint("%s. The object is retried", guard.Hint).Final())
	o.err = err
	return o
}

func withTimeout(ctx context.Context, obj Object) (context.Context, context.CancelFunc) {
	timeout := obj.Schedule().Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	return context.WithTimeout(ctx, timeout)
}

func (l *loop[T]) finalize(ctx context.Context, obj T) (ctrl.Result, error) {
	l.clearWaiting(obj) // gates do not hold deletions
	if controllerutil.ContainsFinalizer(obj, l.Finalizer) {
		start, w := l.Clock.Now(), newStatusWriter(l, obj)
		bounded, cancel := withTimeout(ctx, obj)
		err := guard.DoContext(ctx, "finalizing", func() error { return l.Step.Finalize(bounded, obj) })
		cancel()
		if err != nil {
			outcome := Failed(err)
			setConditions(obj, outcome)
			if err := w.write(ctx, obj); err != nil {
				return ctrl.Result{}, client.IgnoreNotFound(err)
			}
			l.emit(obj, w.before, outcome)
			l.logOutcome(ctx, obj, w.before, outcome, l.Clock.Since(start))
			return ctrl.Result{RequeueAfter: l.failures.backoff(client.ObjectKeyFromObject(obj), l.Retry, 0)}, nil
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

// forget removes everything that the kernel stores about a deleted object.
func (l *loop[T]) forget(obj T) {
	key := client.ObjectKeyFromObject(obj)
	l.Edges.Set(l.ref(obj), nil)
	l.failures.reset(key)
	l.known.reset(key)
	l.writes.forget(key)
	l.gateFields.forget(key)
	l.waits.next(key, wait{})
	l.clearWaiting(obj)
	if l.Gates != nil {
		l.Gates.SetObserved(l.ref(obj), nil, nil)
	}
	l.Suspects.Forget(l.nameOf(key))
	if l.Shards != nil {
		l.Shards.Forget(l.nameOf(key))
	}
	forgetMetrics(l.GroupKind, key)
	l.Info.forget(l.ref(obj))
}

// requeueAfter returns when the object is due again if no edge enqueues it earlier.
func (l *loop[T]) requeueAfter(obj T, o Outcome) time.Duration {
	s, key := obj.Schedule(), client.ObjectKeyFromObject(obj)
	if o.state != failed && o.err == nil {
		l.failures.reset(key)
	}
	switch {
	case o.state == progressing:
		return o.after
	case (o.state == failed || o.state == held) && o.after > 0:
		return l.retryAfter(key, o.after)
	case (o.state == ready || o.state == waiting) && o.after > 0:
		return o.after
	case o.state == failed && s.RetryInterval > 0:
		return l.retryAfter(key, l.Retry.jitter(s.RetryInterval))
	case o.state == failed, guard.IsPanic(o.err):
		return l.retryAfter(key, l.failures.backoff(key, l.Retry, s.Interval))
	case s.Interval > 0 && s.Interval < shortInterval:
		return l.retryAfter(key, l.Retry.jitter(max(s.Interval, minInterval)))
	default:
		return l.Retry.jitter(s.Interval)
	}
}

// retryAfter returns the delay of a retry within the budget of its namespace.
func (l *loop[T]) retryAfter(key types.NamespacedName, wanted time.Duration) time.Duration {
	return l.retries.delay(key.Namespace, l.Clock.Now(), wanted)
}

func (l *loop[T]) ref(obj T) Ref { return RefTo(l.GroupKind, obj.GetNamespace(), obj.GetName()) }

// emit emits the outcome's notes, and an event if Ready changed or the outcome asks for one. If the object is Ready by
// what the pass changed, one event of the cluster says both, and that the pass finished.
func (l *loop[T]) emit(obj, before T, o Outcome) {
	if o.emitted != nil {
		defer o.emitted()
	}
	was := apimeta.FindStatusCondition(before.CommonStatus().Conditions, TypeReady)
	is := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, TypeReady)
	announced := o.state == ready && is != nil && is.Status == metav1.ConditionTrue &&
		(o.eventReason != "" || l.isNews(obj, was, is, o))
	summary := ""
	minor := o.unchanged && was != nil && was.Status == metav1.ConditionTrue &&
		is != nil && is.Status == metav1.ConditionTrue
	for _, n := range o.notes {
		if is != nil && n.reason == is.Reason && n.message == explain.WithoutCode(is.Message) {
			o.eventReason = is.Reason // one event for both
			continue
		}
		if n.eventType == warning {
			n.message = explain.WithCode(n.reason, n.message, maxMessage)
		}
		summarized := announced && (n.isSummary || n.isMinor)
		if summarized {
			summary = strings.TrimPrefix(summary+"\n"+n.message, "\n")
		}
		metadata := o.metadata
		if n.metadata != nil {
			metadata = maps.Clone(n.metadata)
			maps.Copy(metadata, o.metadata)
		}
		l.Events.Emit(l.GroupKind.Group, obj, Event{Type: n.eventType, Reason: n.reason, Message: n.message,
			Metadata: metadata, Summarized: summarized, Minor: n.isMinor && minor})
	}
	if is == nil || o.eventReason == "" && !announced && !l.isNews(obj, was, is, o) {
		return
	}
	eventType := normal
	if is.Status == metav1.ConditionFalse && o.state != waiting {
		eventType = warning
	}
	l.Events.Emit(l.GroupKind.Group, obj, Event{
		Type: eventType, Reason: cmp.Or(o.eventReason, is.Reason), Message: is.Message, Metadata: o.metadata,
		Summary: summary,
		Minor:   minor,
	})
}

func (l *loop[T]) load(ctx context.Context, req ctrl.Request) (T, bool, error) {
	obj := l.New()
	err := l.Client.Get(ctx, req.NamespacedName, obj)
	if err != nil && !apierrors.IsNotFound(err) {
		return obj, false, err
	}
	if err != nil {
		gone := l.New()
		gone.SetNamespace(req.Namespace)
		gone.SetName(req.Name)
		l.forget(gone)
		return gone, false, nil
	}
	return l.writes.newest(obj), true, nil
}
