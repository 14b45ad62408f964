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
	"k8s.io/client-go/rest"
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
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/credentials/seal"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

type pass = reconcile.Pass[*sourcev1.GitRepository]

// step is a Step made of closures.
type step struct {
	mu         sync.Mutex
	passes     int
	reconcile  func(context.Context, *pass) reconcile.Outcome
	finalize   func() error
	references []reconcile.Ref
	gates      reconcile.Gatekeeper
	behavior   reconcile.GateBehavior
	namespaces []string // that are reconciled besides that of the bench
	emits      func(reconcile.Object, reconcile.Event)
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

// recorder records events.
type recorder struct {
	mu     sync.Mutex
	events []reconcile.Event
	before func(reconcile.Object, reconcile.Event) // nil, or called for each event first
}

func (r *recorder) Emit(_ string, obj reconcile.Object, e reconcile.Event) {
	if r.before != nil {
		r.before(obj, e)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.events)
}

// bench runs the kernel with one kind and one object against a real API server.
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
	installDefinitions(t, cfg)
	scheme := runtime.NewScheme()
	if err := sourcev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	namespace := testenv.Namespace(t)
	namespaces := map[string]cache.Config{namespace: {}}
	for _, n := range s.namespaces {
		namespaces[n] = cache.Config{}
	}
	mgr, err := ctrlmanager.New(cfg, ctrlmanager.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		GracefulShutdownTimeout: ptr.To(3 * time.Minute),
		Cache:                   cache.Options{DefaultNamespaces: namespaces},
		Controller:              ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, client: mgr.GetClient(), namespace: namespace, step: s, events: &recorder{before: s.emits},
		edges: reconcile.NewEdges()}
	kernel := &reconcile.Kernel{
		Client: mgr.GetClient(), Edges: b.edges, Events: b.events, Clock: clock.RealClock{},
		Retry: reconcile.Retry{Min: 10 * time.Millisecond, Max: 50 * time.Millisecond}, Gates: s.gates,
		Seals: seal.New(make([]byte, seal.Size)),
	}
	if err := reconcile.Register(mgr, kernel, reconcile.Kind[*sourcev1.GitRepository]{
		GroupKind: kind, New: func() *sourcev1.GitRepository { return &sourcev1.GitRepository{} }, Step: s,
		Concurrent: 2, GateBehavior: s.behavior,
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
			Interval: meta.Duration{Duration: time.Hour}},
	}
	if err := b.client.Create(context.Background(), obj); err != nil {
		t.Fatal(err)
	}
	return b
}

// installDefinitions installs the CustomResourceDefinitions once for all tests.
func installDefinitions(t *testing.T, cfg *rest.Config) {
	t.Helper()
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
		// Apply waits for them only for a short time.
		testenv.Eventually(t, "the CustomResourceDefinitions are established", func() error {
			_, err := cluster.Apply(context.Background(),
				apply.Request{Owner: apply.Owner{Group: "test.io", Namespace: "x", Name: "x"}, Objects: objects})
			return err
		})
	})
}

// until waits until check returns nil for the object.
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
	testenv.Eventually(b, "the object is deleted", func() error {
		err := b.client.Get(context.Background(), types.NamespacedName{Namespace: b.namespace, Name: "it"},
			&sourcev1.GitRepository{})
		return errors.Join(client.IgnoreNotFound(err),
			map[bool]error{true: errors.New("the object still exists")}[err == nil])
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
