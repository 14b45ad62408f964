package apply

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/internal/cluster/kubewatch"
)

// DefaultFieldManager is the field manager that other implementations of these APIs use. So Sluice takes over their
// objects without conflicts, and removes their fields when they are no longer declared.
const DefaultFieldManager = "kustomize-controller"

// DefaultConcurrency is the default number of concurrent requests of an Apply.
const DefaultConcurrency = 8

// ClusterOptions configures a cluster.
type ClusterOptions struct {
	FieldManager string // DefaultFieldManager when empty
	Namespace    string // of objects that declare none; when empty, they are refused
	Concurrency  int    // concurrent requests of each Apply; DefaultConcurrency when 0
	// WaitTimeout bounds how long one call waits for definitions to be served and for objects to be deleted, for all
	// objects together; 10 s when 0. See [IsWaiting].
	WaitTimeout time.Duration
	OnDrift     func(Owner) // called when a live object of the owner drifted; must not block
	Contention  ContentionOptions
	// CustomStage lists kinds that are applied after definitions, namespaces and classes, and before all other kinds.
	CustomStage []schema.GroupKind
	// OverrideManagers lists field managers whose fields are taken over like those of kubectl: fields that they set and
	// that are not declared are removed.
	OverrideManagers []string
	Clock            clock.PassiveClock // for contention; the real clock when nil
}

// Cluster applies objects to one cluster under one identity. All owners share its watches. It is safe for concurrent
// use, with one call at a time for each owner.
type Cluster struct {
	options   ClusterOptions
	managers  managers
	dynamic   dynamic.Interface
	metadata  metadata.Interface
	discovery discovery.DiscoveryInterface
	cached    discovery.CachedDiscoveryInterface
	mapper    *restmapper.DeferredDiscoveryRESTMapper
	notifier  *notifier

	mu          sync.Mutex
	tracked     map[Owner]map[Ref]*trackedObject // by Ref.key
	watches     *watchStore
	corrections map[Owner]map[Ref]*correctionHistory // by Ref.key
	deletable   map[schema.GroupVersionResource]bool // whether the account may delete such objects in all namespaces
	refused     map[Owner]bool                       // see writeDirect
}

// NewCluster returns a cluster. It sends no request.
func NewCluster(cfg *rest.Config, o ClusterOptions) (*Cluster, error) {
	if o.FieldManager == "" {
		o.FieldManager = DefaultFieldManager
	}
	if o.Concurrency <= 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.WaitTimeout <= 0 {
		o.WaitTimeout = defaultWaitTimeout
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
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return boundedTransport{next} })
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
	c := newCluster(o, kubewatch.Metadata(m))
	c.dynamic, c.metadata, c.discovery = d, m, disco
	c.cached = memory.NewMemCacheClient(disco)
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(c.cached)
	return c, nil
}

// newCluster returns a cluster with watches, but without clients.
func newCluster(o ClusterOptions, client kubewatch.Client[*metav1.PartialObjectMetadata]) *Cluster {
	c := &Cluster{
		options: o, managers: managers{own: o.FieldManager, overridden: o.OverrideManagers},
		notifier: newNotifier(o.OnDrift),
		tracked:  map[Owner]map[Ref]*trackedObject{}, corrections: map[Owner]map[Ref]*correctionHistory{},
		deletable: map[schema.GroupVersionResource]bool{}, refused: map[Owner]bool{},
	}
	c.watches = c.newWatches(client)
	return c
}

// DefaultNamespace returns the namespace of objects that declare none; empty if they are refused.
func (c *Cluster) DefaultNamespace() string { return c.options.Namespace }

// Dynamic returns a client for all objects of the cluster.
func (c *Cluster) Dynamic() dynamic.Interface { return c.dynamic }

// Metadata returns a client for the metadata of all objects of the cluster.
func (c *Cluster) Metadata() metadata.Interface { return c.metadata }

// Mapper returns the mapper for the kinds of the cluster.
func (c *Cluster) Mapper() meta.ResettableRESTMapper { return c.mapper }

// Discovery returns what the cluster serves. It is cached until the mapper is reset.
func (c *Cluster) Discovery() discovery.CachedDiscoveryInterface { return c.cached }

// Close stops all watches. OnDrift is not called after it.
func (c *Cluster) Close() {
	c.notifier.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches.Close()
	c.tracked = map[Owner]map[Ref]*trackedObject{}
}

type warningsKey struct{}

// warnings collects the warnings of the API server for the requests of one Apply.
type warnings struct {
	mu   sync.Mutex
	all  []string
	seen map[string]bool
}

func withWarnings(ctx context.Context) (context.Context, *warnings) {
	w := &warnings{seen: map[string]bool{}}
	return context.WithValue(ctx, warningsKey{}, w), w
}

// warningCollector adds a warning to the warnings in the context of its request.
type warningCollector struct{}

func (warningCollector) HandleWarningHeaderWithContext(ctx context.Context, code int, _, text string) {
	const miscellaneous = 299 // the only code that the API server uses
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

func (c *Cluster) client(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.dynamic.Resource(resource)
	}
	return c.dynamic.Resource(resource).Namespace(namespace)
}
