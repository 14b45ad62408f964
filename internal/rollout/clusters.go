package rollout

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/cluster/health"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Clusters provides the clusters that objects deploy to. Owners with the same cluster and identity share one [Target],
// and so its watches. It is safe for concurrent use.
type Clusters struct {
	Config *rest.Config // of the cluster that the controllers run for
	Remote *RemoteClusters
	Edges  *reconcile.Edges     // by which owners are enqueued when live objects drift or change their health
	Apply  apply.ClusterOptions // OnDrift is set by Clusters
	Claims *Claims              // of all controllers

	Dependencies *DependencyWatch // of all controllers

	mu      sync.Mutex
	targets map[string]*Target
	used    map[reconcile.Ref]string    // the key of each owner's target
	kinds   map[string]schema.GroupKind // of the owners, by API group
	waits   waits
}

// Destination is the cluster and the identity that an object deploys with.
type Destination struct {
	// KubeConfig names the credentials of a remote cluster; nil for the cluster of the controllers.
	KubeConfig *meta.KubeConfigReference
	// ServiceAccount in the namespace of the owner is impersonated; no impersonation when empty.
	ServiceAccount string
}

// Target is a cluster that is used with one identity.
type Target struct {
	Config  *rest.Config // of the identity
	Cluster *apply.Cluster
	Health  *health.Watcher

	cluster string // identifies the cluster, without the identity
	waits   *waits

	mu         sync.Mutex
	closed     bool
	closers    []func()
	discovered time.Time // when discovery was refreshed last
}

// Target returns the target of an owner. The owner uses it until it has another target or calls [Clusters.Release].
func (c *Clusters) Target(ctx context.Context, owner reconcile.Ref, d Destination) (*Target, error) {
	user := ""
	if d.ServiceAccount != "" {
		user = UserName(types.NamespacedName{Namespace: owner.Namespace, Name: d.ServiceAccount})
	}
	connection := &connection{config: c.Config}
	if d.KubeConfig != nil {
		var err error
		if connection, err = c.Remote.connect(ctx, owner.Namespace, d.KubeConfig); err != nil {
			return nil, err
		}
	}
	key := digestOf(connection.id, user)
	if connection.login != nil && !c.has(key) {
		if err := connection.login(ctx); err != nil {
			return nil, err
		}
	}
	return c.target(owner, connection, key, user)
}

// UserName returns the user name of a service account.
func UserName(account types.NamespacedName) string {
	return "system:serviceaccount:" + account.Namespace + ":" + account.Name
}

// OwnerOf returns the owner in the form that package apply uses for labels.
func OwnerOf(ref reconcile.Ref) apply.Owner {
	return apply.Owner{Group: ref.Group, Namespace: ref.Namespace, Name: ref.Name}
}

func (c *Clusters) has(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.targets[key] != nil
}

// digestOf returns a digest of the parts, which may be secrets.
func digestOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))
}

// target returns the target with the key, and creates it if needed. The previous target of the owner is released.
func (c *Clusters) target(owner reconcile.Ref, to *connection, key, user string) (*Target, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.targets[key]
	if t == nil {
		var err error
		if t, err = c.newTarget(to, user); err != nil {
			return nil, err
		}
		if c.targets == nil {
			c.targets, c.used = map[string]*Target{}, map[reconcile.Ref]string{}
			c.kinds = map[string]schema.GroupKind{}
		}
		c.targets[key] = t
	}
	c.kinds[owner.Group] = owner.GroupKind
	if c.used[owner] != key {
		c.release(owner)
		c.used[owner] = key
	}
	return t, nil
}

func (c *Clusters) newTarget(to *connection, user string) (*Target, error) {
	cfg := rest.CopyConfig(to.config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
	options := c.Apply
	options.OnDrift, options.Namespace = c.enqueue, to.namespace
	cluster, err := apply.NewCluster(cfg, options)
	if err != nil {
		return nil, fault.New(reconcile.ReasonFailed, "cannot use the cluster's address or credentials").Because(err)
	}
	return &Target{Config: cfg, Cluster: cluster, cluster: digestOf(to.id), waits: &c.waits,
		Health: health.NewWatcher(cluster.Dynamic(), cluster.Mapper(), c.healthChanged)}, nil
}

// release ends the owner's use of its target, and closes a target that is no longer used. The caller holds the lock.
func (c *Clusters) release(owner reconcile.Ref) {
	key, ok := c.used[owner]
	if !ok {
		return
	}
	delete(c.used, owner)
	for _, k := range c.used {
		if k == key {
			return
		}
	}
	c.targets[key].close()
	delete(c.targets, key)
}

// Release ends the owner's use of its target, when the owner is deleted.
func (c *Clusters) Release(owner reconcile.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release(owner)
	c.Claims.Forget(owner)
	c.Dependencies.keep(owner, 0)
}

// enqueue enqueues the owner whose objects drifted.
func (c *Clusters) enqueue(o apply.Owner) {
	c.mu.Lock()
	kind := c.kinds[o.Group]
	c.mu.Unlock()
	c.Edges.Enqueue(reconcile.RefTo(kind, o.Namespace, o.Name))
}

// healthKey identifies an owner to a [health.Watcher].
func healthKey(owner reconcile.Ref) string {
	return owner.Group + "/" + owner.Namespace + "/" + owner.Name
}

// healthChanged wakes the pass that waits for the health of an owner's objects, or enqueues the owner.
func (c *Clusters) healthChanged(key string) {
	if !c.waits.wake(key) {
		c.enqueueKey(key)
	}
}

// enqueueKey enqueues the owner with a health key.
func (c *Clusters) enqueueKey(key string) {
	group, name, _ := strings.Cut(key, "/")
	namespace, name, _ := strings.Cut(name, "/")
	c.enqueue(apply.Owner{Group: group, Namespace: namespace, Name: name})
}

// Forget removes what the target stores about the owner: drift state and health watches.
func (t *Target) Forget(owner reconcile.Ref) {
	t.Cluster.Forget(OwnerOf(owner))
	t.Health.Forget(healthKey(owner))
}

// RefreshDiscovery makes the next use of what the cluster serves ask the API server, if the last refresh is older than
// maxAge.
func (t *Target) RefreshDiscovery(now time.Time, maxAge time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.discovered) >= maxAge {
		t.discovered = now
		t.Cluster.Mapper().Reset()
	}
}

// OnClose makes a function run when the target is no longer used; at once if it is not used any longer. The function
// must not call methods of [Clusters].
func (t *Target) OnClose(f func()) {
	t.mu.Lock()
	closed := t.closed
	if !closed {
		t.closers = append(t.closers, f)
	}
	t.mu.Unlock()
	if closed {
		f()
	}
}

func (t *Target) close() {
	t.mu.Lock()
	closers := t.closers
	t.closed, t.closers = true, nil
	t.mu.Unlock()
	for _, f := range closers {
		f()
	}
	t.Health.Close()
	t.Cluster.Close()
}

// Close stops all watches.
func (c *Clusters) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.targets {
		t.close()
	}
	c.targets, c.used = nil, nil
}
