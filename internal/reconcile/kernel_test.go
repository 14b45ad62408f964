package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

type pass = reconcile.Pass[*sourcev1.GitRepository]

// step is a domain step of closures.
type step struct {
	mu         sync.Mutex
	passes     int
	reconcile  func(context.Context, *pass) reconcile.Outcome
	finalize   func() error
	references []reconcile.Ref
	gates      reconcile.Gatekeeper
	sort       reconcile.Sort
}

func (s *step) References(*sourcev1.GitRepository) []reconcile.Ref { return s.references }

func (s *step) Reconcile(ctx context.Context, p *pass) reconcile.Outcome {
	s.mu.Lock()
	s.passes++
	do := s.reconcile
	s.mu.Unlock()
	return do(ctx, p)
}

func (s *step) Finalize(context.Context, *sourcev1.GitRepository) error {
	if s.finalize == nil {
		return nil
	}
	return s.finalize()
}

func (s *step) set(do func(context.Context, *pass) reconcile.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reconcile = do
}

func (s *step) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.passes
}

// recorder keeps events.
type recorder struct {
	mu     sync.Mutex
	events []reconcile.Event
}

func (r *recorder) Emit(_ string, _ reconcile.Object, e reconcile.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.events)
}

// bench is a kernel with one kind over the real API server.
type bench struct {
	*testing.T
	client    client.Client
	namespace string
	step      *step
	events    *recorder
	edges     *reconcile.Edges
}

var (
	kind    = schema.GroupKind{Group: "source.toolkit.fluxcd.io", Kind: "GitRepository"}
	install sync.Once
)

func newBench(t *testing.T, s *step) *bench {
	t.Helper()
	cfg := testenv.Cluster(t)
	install.Do(func() {
		objects, err := config.Definitions()
		if err != nil {
			t.Fatal(err)
		}
		cluster, err := apply.NewCluster(cfg, apply.ClusterOptions{WaitTimeout: 3 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer cluster.Close()
		// which apply waits for, though not for long
		testenv.Eventually(t, "the definitions are established", func() error {
			_, err := cluster.Apply(context.Background(),
				apply.Request{Owner: apply.Owner{Group: "test.io", Namespace: "x", Name: "x"}, Objects: objects})
			return err
		})
	})
	scheme := runtime.NewScheme()
	if err := sourcev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	namespace := testenv.Namespace(t)
	mgr, err := ctrlmanager.New(cfg, ctrlmanager.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		GracefulShutdownTimeout: ptr.To(3 * time.Minute),
		Cache:                   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Controller:              ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, client: mgr.GetClient(), namespace: namespace, step: s, events: &recorder{},
		edges: reconcile.NewEdges()}
	kernel := &reconcile.Kernel{
		Client: mgr.GetClient(), Edges: b.edges, Events: b.events, Clock: clock.RealClock{},
		Retry: reconcile.Retry{Min: 10 * time.Millisecond, Max: 50 * time.Millisecond}, Gates: s.gates,
	}
	if err := reconcile.Register(mgr, kernel, reconcile.Kind[*sourcev1.GitRepository]{
		GroupKind: kind, New: func() *sourcev1.GitRepository { return &sourcev1.GitRepository{} }, Step: s,
		Concurrent: 2, Sort: s.sort,
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the cache did not sync")
	}
	obj := &sourcev1.GitRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "it"},
		Spec: sourcev1.GitRepositorySpec{URL: "https://example.com/x",
			Interval: metav1.Duration{Duration: time.Hour}},
	}
	if err := b.client.Create(context.Background(), obj); err != nil {
		t.Fatal(err)
	}
	return b
}

// until waits for a state of the object.
func (b *bench) until(what string, check func(*sourcev1.GitRepository) error) {
	b.Helper()
	testenv.Eventually(b, what, func() error {
		var obj sourcev1.GitRepository
		if err := b.client.Get(context.Background(), types.NamespacedName{Namespace: b.namespace, Name: "it"},
			&obj); err != nil {
			return err
		}
		return check(&obj)
	})
}

func (b *bench) patch(json string) {
	b.Helper()
	obj := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "it"}}
	if err := b.client.Patch(context.Background(), obj,
		client.RawPatch(types.MergePatchType, []byte(json))); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) delete() {
	b.Helper()
	if err := b.client.Delete(context.Background(),
		&sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "it"}}); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) untilGone() {
	b.Helper()
	testenv.Eventually(b, "it is gone", func() error {
		err := b.client.Get(context.Background(), types.NamespacedName{Namespace: b.namespace, Name: "it"},
			&sourcev1.GitRepository{})
		return errors.Join(client.IgnoreNotFound(err), map[bool]error{true: errors.New("still there")}[err == nil])
	})
}

func (b *bench) ref() reconcile.Ref { return reconcile.RefTo(kind, b.namespace, "it") }

func has(conditionType string, status metav1.ConditionStatus, reason string) func(*sourcev1.GitRepository) error {
	return func(o *sourcev1.GitRepository) error {
		c := apimeta.FindStatusCondition(o.Status.Conditions, conditionType)
		if c == nil || c.Status != status || c.Reason != reason || c.ObservedGeneration != o.Generation {
			return fmt.Errorf("%+v", o.Status.Conditions)
		}
		return nil
	}
}

func answer(o reconcile.Outcome) func(context.Context, *pass) reconcile.Outcome {
	return func(context.Context, *pass) reconcile.Outcome { return o }
}

func TestOutcomesBecomeConditions(t *testing.T) {
	for reason, c := range map[string]struct {
		outcome  reconcile.Outcome
		ready    metav1.ConditionStatus
		reason   string
		beside   string // the condition that stands beside Ready
		besideIs string
	}{
		"ready": {reconcile.Ready("Succeeded", "fine"), metav1.ConditionTrue, "Succeeded", "", ""},
		"progressing": {reconcile.Progressing(time.Hour, "rolling out"), metav1.ConditionUnknown,
			"Progressing", "Reconciling", "Progressing"},
		"waiting": {reconcile.Waiting("DependencyNotReady", "for x"), metav1.ConditionFalse,
			"DependencyNotReady", "Reconciling", "ProgressingWithRetry"},
		"failed": {reconcile.Failed(errors.New("broken")), metav1.ConditionFalse, "Failed",
			"Reconciling", "ProgressingWithRetry"},
		"failed with a reason": {reconcile.Failed(fault.New("BuildFailed", "broken")), metav1.ConditionFalse,
			"BuildFailed", "Reconciling", "ProgressingWithRetry"},
		"failed, no retry can help": {reconcile.Failed(fault.New("URLInvalid", "broken").Final()),
			metav1.ConditionFalse, "URLInvalid", "Stalled", "URLInvalid"},
	} {
		t.Run(reason, func(t *testing.T) {
			b := newBench(t, &step{reconcile: answer(c.outcome)})
			b.until("Ready is told", has("Ready", c.ready, c.reason))
			b.until("the condition beside it", func(o *sourcev1.GitRepository) error {
				for _, other := range []string{"Reconciling", "Stalled"} {
					found := apimeta.FindStatusCondition(o.Status.Conditions, other)
					if (found != nil) != (other == c.beside) || found != nil && found.Reason != c.besideIs {
						return fmt.Errorf("%s: %+v", other, found)
					}
				}
				return nil
			})
		})
	}
}

func TestPanicIsToldAndRetried(t *testing.T) {
	s := &step{reconcile: func(context.Context, *pass) reconcile.Outcome { panic("oh") }}
	b := newBench(t, s)
	b.until("it is Stalled", has("Stalled", metav1.ConditionTrue, "Failed"))
	testenv.Eventually(t, "it is retried", func() error {
		if s.count() < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	s.set(answer(reconcile.Ready("Succeeded", "fine again")))
	b.until("it recovers", has("Ready", metav1.ConditionTrue, "Succeeded"))
}

func TestRepetitionIsNeitherWrittenNorTold(t *testing.T) {
	s := &step{reconcile: answer(reconcile.Failed(fault.New("BuildFailed", "the same each time")))}
	b := newBench(t, s)
	b.until("it fails", has("Ready", metav1.ConditionFalse, "BuildFailed"))
	var version string
	b.until("its version is noted", func(o *sourcev1.GitRepository) error { version = o.ResourceVersion; return nil })
	from := s.count()
	testenv.Eventually(t, "it is retried", func() error {
		if s.count() < from+5 {
			return errors.New("not yet")
		}
		return nil
	})
	b.until("nothing was written", func(o *sourcev1.GitRepository) error {
		if o.ResourceVersion != version {
			t.Fatalf("written: %s, %s", version, o.ResourceVersion)
		}
		return nil
	})
	if n := b.events.count(); n != 1 {
		t.Errorf("%d events", n)
	}
}

func TestWhatStaysReadyQuietlyIsMinor(t *testing.T) {
	s := &step{reconcile: answer(reconcile.Ready("Succeeded", "one").Quietly())}
	b := newBench(t, s)
	b.until("it is Ready", has("Ready", metav1.ConditionTrue, "Succeeded"))
	s.set(answer(reconcile.Ready("Succeeded", "two").Quietly()))
	b.patch(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"1"}}}`)
	testenv.Eventually(t, "both are told", func() error {
		if n := b.events.count(); n != 2 {
			return fmt.Errorf("%d events", n)
		}
		return nil
	})
	first, second := b.events.events[0], b.events.events[1]
	if first.Minor || !second.Minor || second.Message != "two" {
		t.Errorf("only what was Ready before is minor: %+v, %+v", first, second)
	}
}

func TestNewsAreToldThoughReadyStays(t *testing.T) {
	s := &step{reconcile: answer(reconcile.Ready("Succeeded", "stored").News("NewArtifact"))}
	b := newBench(t, s)
	b.until("it is Ready", has("Ready", metav1.ConditionTrue, "Succeeded"))
	handled := func(request string) {
		b.patch(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"` + request + `"}}}`)
		b.until("the request is handled", func(o *sourcev1.GitRepository) error {
			if got := o.Status.LastHandledReconcileAt; got != request {
				return errors.New("the last one is " + got)
			}
			return nil
		})
	}
	s.set(answer(reconcile.Ready("Succeeded", "stored")))
	handled("1")
	s.set(answer(reconcile.Ready("Succeeded", "stored").News("NewArtifact")))
	handled("2")
	testenv.Eventually(t, "both news are told", func() error {
		if n := b.events.count(); n != 2 {
			return fmt.Errorf("%d events", n)
		}
		return nil
	})
	for _, e := range b.events.events {
		if e.Reason != "NewArtifact" || e.Message != "stored" {
			t.Errorf("%+v", e)
		}
	}
}

func TestRequestIsHandledOnce(t *testing.T) {
	asked := make(chan bool, 100)
	b := newBench(t, &step{reconcile: func(_ context.Context, p *pass) reconcile.Outcome {
		asked <- p.Requested
		return reconcile.Ready("Succeeded", "fine")
	}})
	b.until("it is Ready", has("Ready", metav1.ConditionTrue, "Succeeded"))
	if <-asked {
		t.Error("the first pass was requested by nobody")
	}
	b.patch(fmt.Sprintf(`{"metadata":{"annotations":{%q:"now"}}}`, meta.ReconcileRequestAnnotation))
	b.until("the request is handled", func(o *sourcev1.GitRepository) error {
		if o.Status.LastHandledReconcileAt != "now" {
			return errors.New(o.Status.LastHandledReconcileAt)
		}
		return nil
	})
	if !<-asked {
		t.Error("the pass did not know that it was requested")
	}
}

func TestSuspendedIsLeftAlone(t *testing.T) {
	s := &step{reconcile: answer(reconcile.Ready("Succeeded", "fine"))}
	b := newBench(t, s)
	b.until("it is Ready", has("Ready", metav1.ConditionTrue, "Succeeded"))
	before := s.count()
	b.patch(`{"spec":{"suspend":true}}`)
	b.patch(`{"spec":{"url":"https://example.com/y"}}`)
	b.patch(`{"spec":{"suspend":false}}`)
	b.until("it goes on when resumed", func(o *sourcev1.GitRepository) error {
		if o.Status.ObservedGeneration != o.Generation {
			return errors.New("not yet")
		}
		return nil
	})
	if n := s.count() - before; n != 1 {
		t.Errorf("%d passes, want the one after it was resumed", n)
	}
}

func TestEdgesWakeWhatRefers(t *testing.T) {
	other := reconcile.RefTo(schema.GroupKind{Kind: "Secret"}, "ns", "s")
	s := &step{reconcile: answer(reconcile.Waiting("DependencyNotReady", "for a secret")),
		references: []reconcile.Ref{other}}
	b := newBench(t, s)
	b.until("it waits", has("Ready", metav1.ConditionFalse, "DependencyNotReady"))
	s.set(answer(reconcile.Ready("Succeeded", "there it is")))
	b.edges.Fire(other)
	b.until("the edge woke it", has("Ready", metav1.ConditionTrue, "Succeeded"))
}

func TestFinalizerHoldsUntilTheStepIsDone(t *testing.T) {
	blocked := make(chan struct{})
	s := &step{reconcile: answer(reconcile.Ready("Succeeded", "fine")), finalize: func() error {
		select {
		case <-blocked:
			return nil
		default:
			return fault.New("PruneFailed", "something holds it")
		}
	}}
	b := newBench(t, s)
	b.until("it has the finalizer", func(o *sourcev1.GitRepository) error {
		if len(o.Finalizers) != 1 || o.Finalizers[0] != reconcile.Finalizer {
			return fmt.Errorf("%v", o.Finalizers)
		}
		return nil
	})
	b.delete()
	b.until("the failure is told", has("Ready", metav1.ConditionFalse, "PruneFailed"))
	close(blocked)
	b.untilGone()
}
