package reconcile

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrl "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/credentials/seal"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
	"github.com/sluice-gitops/sluice/internal/reconcile/shard"
	"github.com/sluice-gitops/sluice/internal/tracing"
)

// Finalizer is the finalizer that these APIs have always used, so that objects can move between installations.
const Finalizer = "finalizers.fluxcd.io"

// defaultTimeout bounds a pass of an object that sets no timeout.
const defaultTimeout = 5 * time.Minute

// Object is an API object that the kernel can reconcile.
type Object interface {
	client.Object
	CommonStatus() *meta.Status
	Schedule() meta.Schedule
}

// Step is the part of a controller that is specific to its kind.
type Step[T Object] interface {
	// References lists the objects that the object depends on. When one of them changes, the object is enqueued.
	References(obj T) []Ref
	// Reconcile brings the object to its declared state. It may set conditions of its own and status fields on the
	// object; the kernel writes them. It must not write the object itself.
	Reconcile(ctx context.Context, pass *Pass[T]) Outcome
	// Finalize removes what was created for the object before the object is deleted. It must be idempotent.
	Finalize(ctx context.Context, obj T) error
}

// Pass is one reconcile of an object.
type Pass[T Object] struct {
	// Object is a copy for this pass: the step may change it.
	Object T
	// Requested reports whether a user or a tool requested this pass by annotation.
	Requested bool
	// InProgress reports whether the previous pass left unfinished work for the same spec which closed gates do not
	// stop. A step that is not admitted may finish that work.
	InProgress bool
	// CurrentRevision is the revision that the object already has for the same spec. A step may set it; gates that let
	// it through before admit it always, as it is not a change.
	CurrentRevision string
	// Variant identifies what would be applied, for kinds whose revision does not: other values of a release, for
	// example. A step sets it before it asks the gates.
	Variant string

	admitted    *meta.Admitted // what gates let through before, nil if that is not known
	wasReverted *meta.Reverted // how the object went back before
	reverted    *meta.Reverted // how it goes back in this pass

	revision  string // the last one that Admit let through in this pass
	decided   string // what rules of gates let through with it; see [Pass.Decide]
	seals     *seal.Key
	save      func(ctx context.Context, message string) error
	admission *admission
}

// Admit asks the gates whether the object may move to a revision. The step of a gated kind calls it before it acts on
// the revision, and calls it again if the revision changes within the pass. When it returns an error, the step returns
// [Held] or [Failed] with that error.
func (p *Pass[T]) Admit(revision string) error {
	return p.admit(revision, func(g decision.Gate) decision.Ruling { return p.admission.judge(g, nil) })
}

// HasRules reports whether a gate decides by the content of a change.
func (p *Pass[T]) HasRules() bool { return p.admission.hasRules() }

// AdmitChange is [Pass.Admit] for a kind whose changes can be computed. Gates with rules decide by what change returns,
// which is called only if there is one: nil if nothing changes, so that nothing has to be decided.
func (p *Pass[T]) AdmitChange(revision string, change func() (Change, error)) error {
	if !p.HasRules() {
		return p.Admit(revision)
	}
	what, err := change()
	return p.admit(revision, func(g decision.Gate) decision.Ruling {
		switch {
		case err != nil:
			return decision.Undecided(decision.ChangeFailed, err.Error())
		case what == nil:
			return decision.Ruling{Unchanged: true}
		}
		return p.admission.judge(g, what)
	})
}

// admit asks the gates about a revision, and records it if they let it through. judge is what a gate with rules says.
func (p *Pass[T]) admit(revision string, judge func(decision.Gate) decision.Ruling) error {
	held := p.admission.decide(decision.Change{Revision: revision, Variant: p.changeOf(revision)}, judge)
	if held != nil && revision != "" && revision == p.CurrentRevision && p.WasAdmitted(revision) &&
		p.admitted.Generation == p.Object.GetGeneration() {
		held = nil
	}
	if held == nil {
		p.revision = revision
	}
	return held
}

// WasAdmitted reports whether a revision is the last one that gates let through before, for this generation or an
// earlier one. Unlike the fields of the status, this is true only if a controller has recorded it.
func (p *Pass[T]) WasAdmitted(revision string) bool {
	return p.admitted != nil && p.admitted.Revision == revision
}

// Seal returns a message authentication code of texts, with the key of the controllers. It is empty without a key.
func (p *Pass[T]) Seal(parts ...string) string { return p.seals.Seal(parts...) }

// Decide records what rules of gates let through, so that only this is applied, also by another process.
func (p *Pass[T]) Decide(what string) { p.decided = p.Seal("decided", what) }

// WasDecided reports whether rules of gates let this through before, with the last revision.
func (p *Pass[T]) WasDecided(what string) bool {
	return p.admitted != nil && p.admitted.Decided != "" && p.seals.Verify(p.admitted.Decided, "decided", what)
}

// IsGated reports whether a gate applies to the object, whether it is open or closed.
func (p *Pass[T]) IsGated() bool { return p.admission != nil }

// IsHeld reports whether gates hold the pass: the step may act only on revisions that were admitted.
func (p *Pass[T]) IsHeld() bool { return len(p.admission.blocking()) > 0 }

// Save writes the status at once, as progressing, in addition to the patch at the end of the pass. It is for status
// that must survive a crash, such as the inventory of objects that are about to be created.
func (p *Pass[T]) Save(ctx context.Context, message string) error { return p.save(ctx, message) }

// Kernel holds what all kinds share.
type Kernel struct {
	Client client.Client
	Edges  *Edges
	Events Events
	Clock  clock.Clock
	Retry  Retry
	Gates  Gatekeeper // nil disables gates
	// Definitions detects that the cluster does not store the gates of objects; may be nil.
	Definitions GateDefinitions
	Seals       *seal.Key       // of the revisions that gates let through
	Tracer      *tracing.Tracer // of changes; nil exports no traces
	// Selector selects the objects that this process reconciles; nil for all. The others are in the cache as well,
	// since objects may refer to them: a consumer need not be on the shard of its source.
	Selector labels.Selector
	// Shards divides the selected objects among replicas; nil if this process reconciles all of them.
	Shards *shard.Shards
	// Live reads objects from the API server. It is needed with Shards only.
	Live client.Reader
	// Suspects are the objects that were in work when an earlier process died; may be nil.
	Suspects *guard.Suspects
}

// Kind describes a kind to the kernel.
type Kind[T Object] struct {
	GroupKind    schema.GroupKind
	New          func() T
	Step         Step[T]
	Concurrent   int          // passes at the same time; up to half more for namespaces that would wait for others
	GateBehavior GateBehavior // what a closed gate does to objects of the kind
	Finalizer    string       // replaces [Finalizer], for kinds that have always used another one
	AnyLabels    bool         // the selector of the kernel does not apply
	// ShardKey returns what decides which replica reconciles an object: objects with the same key have the same one.
	// It is nil for objects that need not be with others. A key may depend on objects that References names.
	ShardKey    func(T) string
	NoFinalizer bool // objects of the kind leave nothing to clean up and can be deleted without a controller
	// LeftTo returns which other controller of the cluster reconciles the kind; empty if none does. Objects are left
	// alone while there is one. It may be nil.
	LeftTo func(context.Context) string
	// DisabledReason is that of the event when an object is suspended; there is none if it is empty.
	DisabledReason string
	Info           *Info[T] // may be nil
}

// NewPasses returns what [Register] runs for each object, for tests that run the passes themselves.
func NewPasses[T Object](k *Kernel, kind Kind[T]) ctrl.Reconciler { return newLoop(k, kind) }

// Register starts reconciling a kind under the manager.
func Register[T Object](mgr manager.Manager, k *Kernel, kind Kind[T]) error {
	workers := max(1, kind.Concurrent)
	l := newLoop(k, kind)
	c, err := controller.New(kind.GroupKind.Kind, mgr, controller.Options{
		MaxConcurrentReconciles: workers + reserve(workers),
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[ctrl.Request],
		) workqueue.TypedRateLimitingInterface[ctrl.Request] {
			return newQueue(name, limiter, workers, &k.Edges.changes)
		},
		Reconciler: l,
		LogConstructor: func(req *ctrl.Request) logr.Logger {
			logger := log.Log.WithName(kind.GroupKind.Kind).
				WithValues("controller", strings.ToLower(kind.GroupKind.Kind))
			if req == nil {
				return logger.V(1) // details of the start
			}
			return logger.WithValues("namespace", req.Namespace, "name", req.Name)
		},
	})
	if err != nil {
		return err
	}
	// The informer runs before the controller does: a standby that takes over lists nothing.
	if _, err := mgr.GetCache().GetInformer(context.Background(), kind.New()); err != nil {
		return err
	}
	if err := l.observeOthers(context.Background(), mgr); err != nil {
		return err
	}
	if err := c.Watch(NamedSource{Name: "edges", Run: func(_ context.Context, q queue) error {
		k.Edges.SetQueue(kind.GroupKind, q)
		if r, ok := any(kind.Step).(Ranker); ok {
			k.Edges.SetRanker(kind.GroupKind, r.OnlyNotes)
		}
		return nil
	}}); err != nil {
		return err
	}
	if k.Gates != nil && kind.GateBehavior != Ungated {
		if err := c.Watch(gateSync{k.Gates}); err != nil {
			return err
		}
	}
	return c.Watch(source.Kind(mgr.GetCache(), client.Object(kind.New()), &handler.EnqueueRequestForObject{},
		l.writes.follow(), relevantChange))
}

// NamedSource is a source of events that logs name, unlike a [source.Func].
type NamedSource struct {
	Name string
	Run  func(context.Context, queue) error
}

// Start implements [source.Source].
func (s NamedSource) Start(ctx context.Context, q queue) error { return s.Run(ctx, q) }

func (s NamedSource) String() string { return s.Name }

// relevantChange filters the events that call for a pass: a new generation, reconcile request or deletion, changed
// labels (gates select objects by label), or a changed schedule or request that a kind keeps in annotations. Status
// patches are ignored.
var relevantChange = guard.Predicate("comparing an object", predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
		requestedAt(e.ObjectOld) != requestedAt(e.ObjectNew) ||
		scheduleOf(e.ObjectOld) != scheduleOf(e.ObjectNew) ||
		!maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
		!maps.Equal(kindRequests(e.ObjectOld), kindRequests(e.ObjectNew)) ||
		e.ObjectNew.GetDeletionTimestamp() != nil && e.ObjectOld.GetDeletionTimestamp() == nil
}})

func scheduleOf(obj client.Object) meta.Schedule {
	if o, ok := obj.(Object); ok {
		return o.Schedule()
	}
	return meta.Schedule{}
}

// kindRequests returns the requests that are specific to the object's kind, by annotation.
func kindRequests(obj client.Object) map[string]string {
	if o, ok := obj.(interface{ Requests() map[string]string }); ok {
		return o.Requests()
	}
	return nil
}

// requestedAt returns the value of the reconcile request annotation.
func requestedAt(obj client.Object) string {
	return obj.GetAnnotations()[meta.ReconcileRequestAnnotation]
}
