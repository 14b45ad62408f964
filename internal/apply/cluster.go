package apply

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// DefaultFieldManager is the manager that installations of these APIs have always used, so that taking over from one
// neither conflicts nor leaves fields behind.
const DefaultFieldManager = "kustomize-controller"

// ClusterOptions of a cluster.
type ClusterOptions struct {
	FieldManager string      // DefaultFieldManager when empty
	Concurrency  int         // requests at once within a stage; 8 when 0
	OnDrift      func(Owner) // called when a live object of the owner moved; must not block
}

// Cluster is one cluster under one identity. All owners that apply to it share its watches. It is safe for concurrent use.
type Cluster struct {
	options  ClusterOptions
	dynamic  dynamic.Interface
	metadata metadata.Interface
	mapper   *restmapper.DeferredDiscoveryRESTMapper

	mu      sync.Mutex
	states  map[Owner]map[Ref]*applied
	watches map[watchKey]*driftWatch
}

// NewCluster connects to a cluster; nothing is asked of it yet.
func NewCluster(cfg *rest.Config, o ClusterOptions) (*Cluster, error) {
	if o.FieldManager == "" {
		o.FieldManager = DefaultFieldManager
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 8
	}
	if o.OnDrift == nil {
		o.OnDrift = func(Owner) {}
	}
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
		options: o, dynamic: d, metadata: m,
		mapper:  restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco)),
		states:  map[Owner]map[Ref]*applied{},
		watches: map[watchKey]*driftWatch{},
	}, nil
}

// Dynamic gives access to any object of the cluster.
func (c *Cluster) Dynamic() dynamic.Interface { return c.dynamic }

// Mapper knows the kinds of the cluster.
func (c *Cluster) Mapper() meta.ResettableRESTMapper { return c.mapper }

// Close stops all watches.
func (c *Cluster) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, w := range c.watches {
		w.stop()
		delete(c.watches, k)
	}
}
