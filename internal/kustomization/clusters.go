package kustomization

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/health"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Clusters hands out the cluster that a Kustomization applies to, under the identity that it applies as.
// One target serves all Kustomizations of the same cluster and identity, so that they share its watches.
type Clusters struct {
	Config *rest.Config // of the cluster that we run for
	Remote *Remote
	Edges  *reconcile.Edges
	Apply  apply.ClusterOptions // but what to do on drift

	mu      sync.Mutex
	targets map[string]*Target
	used    map[types.UID]string // the target of each Kustomization
}

// Target is one cluster under one identity.
type Target struct {
	Cluster *apply.Cluster
	Health  *health.Watcher
}

// For returns the target of the object: the cluster of its kubeConfig, else our own, as the service account
// that it names, else as the default one, else as whoever the configuration says.
func (c *Clusters) For(ctx context.Context, obj *kustomizev1.Kustomization, defaultServiceAccount string) (*Target,
	error) {
	user := ""
	if account := accountOf(obj, defaultServiceAccount); account != "" {
		user = userPrefix + obj.Namespace + ":" + account
	}
	way := &access{config: c.Config}
	if obj.Spec.KubeConfig != nil {
		var err error
		if way, err = c.Remote.access(ctx, obj); err != nil {
			return nil, err
		}
	}
	key := digestOf(way.id, user)
	if way.login != nil && !c.knows(key) {
		if err := way.login(ctx); err != nil {
			return nil, err
		}
	}
	return c.target(obj.UID, way.config, key, user)
}

// userPrefix is that of the users that service accounts are.
const userPrefix = "system:serviceaccount:"

// accountOf is the service account that the object applies as, or empty for whoever the configuration says.
func accountOf(obj *kustomizev1.Kustomization, defaultServiceAccount string) string {
	return cmp.Or(obj.Spec.ServiceAccountName, defaultServiceAccount)
}

func (c *Clusters) knows(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.targets[key] != nil
}

// digestOf names a target without telling what it is made of.
func digestOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))
}

// target returns the target by its key, made when need be. The one that the object used before is let go of.
func (c *Clusters) target(uid types.UID, cfg *rest.Config, key, user string) (*Target, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.targets[key]
	if t == nil {
		var err error
		if t, err = c.connect(cfg, user); err != nil {
			return nil, err
		}
		if c.targets == nil {
			c.targets, c.used = map[string]*Target{}, map[types.UID]string{}
		}
		c.targets[key] = t
	}
	if c.used[uid] != key {
		c.release(uid)
		c.used[uid] = key
	}
	return t, nil
}

func (c *Clusters) connect(cfg *rest.Config, user string) (*Target, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
	options := c.Apply
	options.OnDrift = c.wake
	cluster, err := apply.NewCluster(cfg, options)
	if err != nil {
		return nil, fault.New(reconcile.ReasonFailed, "cannot use the cluster's address or credentials").Because(err)
	}
	return &Target{Cluster: cluster, Health: health.NewWatcher(cluster.Dynamic(), cluster.Mapper(), c.wakeKey)}, nil
}

// release lets go of the target that an object used, and closes it if nobody else uses it. The caller holds the lock.
func (c *Clusters) release(uid types.UID) {
	key, ok := c.used[uid]
	if !ok {
		return
	}
	delete(c.used, uid)
	for _, k := range c.used {
		if k == key {
			return
		}
	}
	c.targets[key].close()
	delete(c.targets, key)
}

// Forget ends the object's use of its target.
func (c *Clusters) Forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release(uid)
}

func (c *Clusters) wake(o apply.Owner) {
	c.Edges.Enqueue(reconcile.Ref{GroupKind: KustomizationGroupKind,
		NamespacedName: types.NamespacedName{Namespace: o.Namespace, Name: o.Name}})
}

func (t *Target) forget(o apply.Owner) {
	t.Cluster.Forget(o)
	t.Health.Forget(healthKey(o))
}

func (t *Target) close() {
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
