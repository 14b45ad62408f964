package alert

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/notify/provider"
)

const (
	secretTTL = 30 * time.Second // after which the Secrets of a Provider in use are read again
	unusedTTL = 5 * time.Minute  // after which an unused sender is dropped
)

// Resolver creates senders from Provider objects and their Secrets. A sender is cached while it is used, and
// created again when the Provider or one of its Secrets changed.
type Resolver struct {
	Secrets    client.Reader // not the cache: Secrets are not kept in memory
	Egress     *egress.Policy
	Identities *auth.Identities
	Clock      clock.PassiveClock

	mu     sync.Mutex
	cached map[types.UID]cachedSender
}

// cachedSender is the sender of a Provider, and what it was created from.
type cachedSender struct {
	provider.Provider
	generation     int64
	secretVersions string
	checkedAt      time.Time // when the Secrets were read
	isStale        bool      // the Secrets must be read before the next use
}

// Provider returns the sender of p. The error is a fault without any content of a Secret.
func (r *Resolver) Provider(ctx context.Context, p *notificationv1.Provider) (provider.Provider, error) {
	if c := r.lookup(p); c != nil && !c.isStale && r.Clock.Since(c.checkedAt) < secretTTL {
		return c, nil
	}
	sender, _, err := r.resolve(ctx, p)
	return sender, err
}

// resolve reads the Secrets and returns the sender. It reports whether anything changed since the last call;
// true also if it fails.
func (r *Resolver) resolve(ctx context.Context, p *notificationv1.Provider) (s provider.Provider, changed bool,
	err error) {
	data, err := r.readSecrets(ctx, p)
	if err != nil {
		r.forget(p)
		return nil, true, err
	}
	if c := r.lookup(p); c != nil && c.secretVersions == data.versions {
		r.store(p, *c)
		return c, false, nil
	}
	o, err := r.options(p, data)
	if err != nil {
		return nil, true, err
	}
	s, err = provider.New(o)
	if err != nil {
		return nil, true, err
	}
	r.store(p, cachedSender{Provider: s, generation: p.Generation, secretVersions: data.versions})
	return s, true, nil
}

// Invalidate makes the next event read the Secrets again, for example after a failure.
func (r *Resolver) Invalidate(p *notificationv1.Provider) {
	if c := r.lookup(p); c != nil {
		c.isStale = true
		r.set(p, c)
	}
}

// lookup returns the cached sender of this generation of a Provider, or nil.
func (r *Resolver) lookup(p *notificationv1.Provider) *cachedSender {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.cached[p.UID]; ok && c.generation == p.Generation {
		return &c
	}
	return nil
}

// store caches a sender whose Secrets were just read, and drops unused ones.
func (r *Resolver) store(p *notificationv1.Provider, c cachedSender) {
	now := r.Clock.Now()
	c.checkedAt, c.isStale = now, false
	r.set(p, &c)
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.cached, func(_ types.UID, c cachedSender) bool { return now.Sub(c.checkedAt) > unusedTTL })
}

func (r *Resolver) set(p *notificationv1.Provider, c *cachedSender) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cached == nil {
		r.cached = map[types.UID]cachedSender{}
	}
	r.cached[p.UID] = *c
}

func (r *Resolver) forget(p *notificationv1.Provider) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.cached, p.UID)
}

// identity is the workload identity of a Provider's service account. It implements [provider.Identity].
type identity struct {
	identities *auth.Identities
	account    *types.NamespacedName
	tls        auth.TLS // of the connection that tokens are sent over
	field      string   // names the Secret of tls
}

// Token implements [provider.Identity].
func (i identity) Token(ctx context.Context, cloud, scope string) (string, error) {
	if err := auth.CheckAuthorities(i.account, i.tls, i.field); err != nil {
		return "", err
	}
	return i.identities.Bearer(ctx, cloud, scope, i.account)
}

func (r *Resolver) identity(p *notificationv1.Provider, tls auth.TLS) provider.Identity {
	i := identity{identities: cmp.Or(r.Identities, &auth.Identities{}), tls: tls, field: "spec.certSecretRef"}
	if p.Spec.CertSecretRef == nil {
		i.field = "spec.secretRef"
	}
	i.account = i.identities.Account(p.Namespace, p.Spec.ServiceAccountName)
	return i
}
