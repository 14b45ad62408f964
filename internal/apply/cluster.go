package apply

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/clock"
)

// DefaultFieldManager is the manager that installations of these APIs have always used, so that taking over from one
// neither conflicts nor leaves fields behind.
const DefaultFieldManager = "kustomize-controller"

// DefaultConcurrency is how many requests of an Apply run at once.
const DefaultConcurrency = 8

// ClusterOptions of a cluster.
type ClusterOptions struct {
	FieldManager string        // DefaultFieldManager when empty
	Concurrency  int           // requests at once of each Apply; DefaultConcurrency when 0
	WaitTimeout  time.Duration // how long definitions may take to be served and objects to go; 30 s when 0
	OnDrift      func(Owner)   // called soon after a live object of the owner moved; must not block
	Contention   ContentionOptions
	// CustomStage names kinds that are applied after definitions, namespaces and classes, and before all others.
	CustomStage []schema.GroupKind
	// OverrideManagers are field managers whose fields become ours, as those of kubectl do: what they set and nobody
	// declares goes.
	OverrideManagers []string
	Clock            clock.PassiveClock // of fights; the real one when nil
}

// Cluster is one cluster under one identity. All owners that apply to it share its watches. It is safe for concurrent
// use, one call at a time for each owner.
type Cluster struct {
	options   ClusterOptions
	managers  managers
	dynamic   dynamic.Interface
	metadata  metadata.Interface
	discovery discovery.DiscoveryInterface
	mapper    *restmapper.DeferredDiscoveryRESTMapper
	edges     *notifier

	mu      sync.Mutex
	states  map[Owner]map[Ref]*applied // by Ref.key
	watches map[watchKey]*driftWatch

	contests map[Owner]map[Ref]*contest // by Ref.key

	// whether the account may delete such objects everywhere, where it was asked
	deletable map[schema.GroupVersionResource]bool
}

// NewCluster connects to a cluster; nothing is asked of it yet.
func NewCluster(cfg *rest.Config, o ClusterOptions) (*Cluster, error) {
	if o.FieldManager == "" {
		o.FieldManager = DefaultFieldManager
	}
	if o.Concurrency <= 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.WaitTimeout <= 0 {
		o.WaitTimeout = defaultPatience
	}
	if o.OnDrift == nil {
		o.OnDrift = func(Owner) {}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	o.Contention = o.Contention.withDefaults()
	cfg = rest.CopyConfig(cfg)
	cfg.WarningHandlerWithContext = warningCollector{}
	d, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	m, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &Cluster{
		options: o, managers: managers{o.FieldManager, o.OverrideManagers}, dynamic: d, metadata: m, discovery: disco,
		mapper:  restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco)),
		edges:   newNotifier(o.OnDrift),
		states:  map[Owner]map[Ref]*applied{},
		watches: map[watchKey]*driftWatch{}, contests: map[Owner]map[Ref]*contest{},
		deletable: map[schema.GroupVersionResource]bool{},
	}, nil
}

// Dynamic gives access to any object of the cluster.
func (c *Cluster) Dynamic() dynamic.Interface { return c.dynamic }

// Mapper knows the kinds of the cluster.
func (c *Cluster) Mapper() meta.ResettableRESTMapper { return c.mapper }

// Close stops all watches. OnDrift is not called after it.
func (c *Cluster) Close() {
	c.edges.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, w := range c.watches {
		w.stop()
		delete(c.watches, k)
	}
	c.states = map[Owner]map[Ref]*applied{}
}

type warningsKey struct{}

// warnings are what the API server remarks on the requests of one Apply.
type warnings struct {
	mu   sync.Mutex
	all  []string
	seen map[string]bool
}

func withWarnings(ctx context.Context) (context.Context, *warnings) {
	w := &warnings{seen: map[string]bool{}}
	return context.WithValue(ctx, warningsKey{}, w), w
}

// warningCollector hands warnings to whoever made the request.
type warningCollector struct{}

func (warningCollector) HandleWarningHeaderWithContext(ctx context.Context, code int, _, text string) {
	const miscellaneous = 299 // the only code by which the API server warns
	w, ok := ctx.Value(warningsKey{}).(*warnings)
	if !ok || code != miscellaneous || text == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.seen[text] {
		w.seen[text] = true
		w.all = append(w.all, text)
	}
}

func (w *warnings) list() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all
}
