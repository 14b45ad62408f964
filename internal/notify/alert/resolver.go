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

	"github.com/sluice-gitops/sluice/api/notification/v1beta3"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/notify/provider"
)

const (
	lookEvery  = 30 * time.Second // at the Secrets of a Provider that is in use
	keepUnused = 5 * time.Minute  // what was made of the Secrets of one that is not
)

// Resolver makes of Provider objects and their Secrets what sends events. What it made is kept while it is in
// use, and made anew as soon as the object or a Secret is another.
type Resolver struct {
	Secrets    client.Reader // past the cache: Secrets are not kept in memory
	Egress     *egress.Policy
	Identities *auth.Identities
	Clock      clock.PassiveClock

	mu   sync.Mutex
	made map[types.UID]made
}

// made is what sends the events of a Provider, and what it was made of.
type made struct {
	provider.Provider
	generation int64
	secrets    string // versions
	looked     time.Time
	doubted    bool // the Secrets may be others by now
}

// Provider returns what sends the events of p. The error is a fault, and holds nothing of a Secret.
func (r *Resolver) Provider(ctx context.Context, p *v1beta3.Provider) (provider.Provider, error) {
	if m := r.kept(p); m != nil && !m.doubted && r.Clock.Since(m.looked) < lookEvery {
		return m, nil
	}
	m, _, err := r.look(ctx, p)
	return m, err
}

// look is Provider by the Secrets as they are now, and tells whether anything is another than before.
func (r *Resolver) look(ctx context.Context, p *v1beta3.Provider) (m provider.Provider, changed bool, err error) {
	s, err := r.read(ctx, p)
	if err != nil {
		r.forget(p)
		return nil, true, err
	}
	if m := r.kept(p); m != nil && m.secrets == s.versions {
		r.keep(p, *m)
		return m, false, nil
	}
	o, err := r.options(p, s)
	if err != nil {
		return nil, true, err
	}
	m, err = provider.New(o)
	if err != nil {
		return nil, true, err
	}
	r.keep(p, made{Provider: m, generation: p.Generation, secrets: s.versions})
	return m, true, nil
}

// Doubt lets the next event look at the Secrets, as after one that was refused.
func (r *Resolver) Doubt(p *v1beta3.Provider) {
	if m := r.kept(p); m != nil {
		m.doubted = true
		r.set(p, m)
	}
}

// kept returns what was made of this generation of a Provider, or nil.
func (r *Resolver) kept(p *v1beta3.Provider) *made {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m, ok := r.made[p.UID]; ok && m.generation == p.Generation {
		return &m
	}
	return nil
}

// keep notes that the Secrets were looked at, and forgets what nobody used for long.
func (r *Resolver) keep(p *v1beta3.Provider, m made) {
	now := r.Clock.Now()
	m.looked, m.doubted = now, false
	r.set(p, &m)
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.made, func(_ types.UID, m made) bool { return now.Sub(m.looked) > keepUnused })
}

func (r *Resolver) set(p *v1beta3.Provider, m *made) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.made == nil {
		r.made = map[types.UID]made{}
	}
	r.made[p.UID] = *m
}

func (r *Resolver) forget(p *v1beta3.Provider) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.made, p.UID)
}

// identity is that of a Provider's service account. It implements [provider.Identity].
type identity struct {
	identities *auth.Identities
	account    *types.NamespacedName
}

// Token implements [provider.Identity].
func (i identity) Token(ctx context.Context, cloud, scope string) (string, error) {
	return i.identities.Bearer(ctx, cloud, scope, i.account)
}

func (r *Resolver) identity(p *v1beta3.Provider) provider.Identity {
	i := identity{identities: cmp.Or(r.Identities, &auth.Identities{})}
	i.account = i.identities.Account(p.Namespace, p.Spec.ServiceAccountName)
	return i
}
