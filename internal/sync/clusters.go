package sync

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/health"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Clusters hands out the cluster that a Kustomization applies to, under the identity that it applies as.
// One target serves all Kustomizations of the same identity, so that they share its watches.
type Clusters struct {
	Config *rest.Config
	Edges  *reconcile.Edges

	mu      sync.Mutex
	targets map[string]*Target
}

// Target is one cluster under one identity.
type Target struct {
	Cluster *apply.Cluster
	Health  *health.Watcher
}

// For returns the target of the object: the service account it names, else the default one, else the controller's own identity.
func (c *Clusters) For(obj *kustomizev1.Kustomization, defaultServiceAccount string) (*Target, error) {
	account := obj.Spec.ServiceAccountName
	if account == "" {
		account = defaultServiceAccount
	}
	user := ""
	if account != "" {
		user = "system:serviceaccount:" + obj.Namespace + ":" + account
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.targets[user]; t != nil {
		return t, nil
	}
	t, err := c.connect(user)
	if err != nil {
		return nil, err
	}
	if c.targets == nil {
		c.targets = map[string]*Target{}
	}
	c.targets[user] = t
	return t, nil
}

func (c *Clusters) connect(user string) (*Target, error) {
	cfg := rest.CopyConfig(c.Config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
	cluster, err := apply.NewCluster(cfg, apply.ClusterOptions{OnDrift: c.wake})
	if err != nil {
		return nil, err
	}
	return &Target{Cluster: cluster, Health: health.NewWatcher(cluster.Dynamic(), cluster.Mapper(), c.wakeKey)}, nil
}

func (c *Clusters) wake(o apply.Owner) {
	c.Edges.Wake(reconcile.Ref{GroupKind: KustomizationGroupKind, NamespacedName: types.NamespacedName{Namespace: o.Namespace, Name: o.Name}})
}

func (t *Target) forget(o apply.Owner) {
	t.Cluster.Forget(o)
	t.Health.Forget(healthKey(o))
}

// Close stops all watches.
func (c *Clusters) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.targets {
		t.Health.Close()
		t.Cluster.Close()
	}
	c.targets = nil
}
