package incluster

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/sluice-gitops/sluice/internal/artifact/accessreview"
	"github.com/sluice-gitops/sluice/internal/credentials/login"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/lru"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

const (
	reviewTTL   = time.Minute // of a right, granted or not
	reviewLimit = 16          // at a time for one user
	maxPeople   = 300         // whose clients and rights are kept
	userQPS     = 50          // requests of one user
)

// people keeps the clients and the rights of the people who use the UI.
type people struct {
	Options
	reviewer  *accessreview.Reviewer
	resources map[string]schema.GroupResource // by kind

	mu    sync.Mutex
	cache lru.Cache[[sha256.Size]byte, *person]
}

func newPeople(o Options, reviewer *accessreview.Reviewer) (*people, error) {
	p := &people{Options: o, reviewer: reviewer, resources: map[string]schema.GroupResource{}}
	for _, k := range kind.All() {
		gvk, err := apiutil.GVKForObject(k.New(), o.Scheme)
		if err != nil {
			return nil, err
		}
		mapping, err := o.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return nil, err
		}
		p.resources[k.Name()] = mapping.Resource.GroupResource()
	}
	return p, nil
}

// get returns the clients and rights of a user with certain groups.
func (p *people) get(who *authenticationv1.UserInfo) (*person, error) {
	key := sha256.Sum256([]byte(strings.Join(append([]string{who.Username}, who.Groups...), "\x00")))
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.cache.Get(key); ok {
		return known, nil
	}
	one, err := p.newPerson(who)
	if err != nil {
		return nil, err
	}
	p.cache.Add(key, one, 1, lru.Limits{Count: maxPeople})
	return one, nil
}

// person is a user with clients that act as this user.
type person struct {
	*people
	user    *authenticationv1.UserInfo // as the API server sees requests of the clients
	client  client.Client
	cluster kubernetes.Interface
	config  *rest.Config

	slot   chan struct{} // held while rights are read
	rights map[view.Scope]right
}

// right is a cached answer. A scope without a namespace is the whole cluster.
type right struct {
	granted bool
	at      time.Time
}

func (p *people) newPerson(who *authenticationv1.UserInfo) (*person, error) {
	one := &person{people: p, user: who.DeepCopy(), slot: make(chan struct{}, 1), rights: map[view.Scope]right{}}
	cfg := rest.CopyConfig(p.Config)
	cfg.QPS, cfg.Burst, cfg.RateLimiter = userQPS, 2*userQPS, nil
	cfg.Impersonate = rest.ImpersonationConfig{UserName: who.Username}
	if !login.IsReserved(who.Username) { // the API server knows the groups of a ServiceAccount
		cfg.Impersonate.Groups = who.Groups
		one.user.Groups = login.AllGroups(who.Groups)
	}
	one.config = cfg
	var err error
	if one.client, err = client.New(cfg, client.Options{Scheme: p.Scheme, Mapper: p.Mapper}); err != nil {
		return nil, err
	}
	one.cluster, err = kubernetes.NewForConfig(cfg)
	return one, err
}

// see is a [ui.User.See]. A right that was granted or revoked takes effect within a minute.
func (p *person) see(ctx context.Context, scopes []view.Scope) (view.Filter, error) {
	select {
	case p.slot <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-p.slot }()
	var everywhere []view.Scope
	for _, s := range scopes {
		if all := (view.Scope{Kind: s.Kind}); !slices.Contains(everywhere, all) {
			everywhere = append(everywhere, all)
		}
	}
	if err := p.review(ctx, everywhere); err != nil {
		return nil, err
	}
	var single []view.Scope
	for _, s := range scopes {
		if !p.rights[view.Scope{Kind: s.Kind}].granted {
			single = append(single, s)
		}
	}
	if err := p.review(ctx, single); err != nil {
		return nil, err
	}
	granted := map[view.Scope]bool{}
	for _, s := range scopes {
		granted[s] = p.rights[view.Scope{Kind: s.Kind}].granted || p.rights[s].granted
	}
	p.forget()
	return func(i *view.Item) bool { return granted[i.Scope()] }, nil
}

// review asks for the rights that are not known, or no longer.
func (p *person) review(ctx context.Context, scopes []view.Scope) error {
	now := p.Now()
	var mu sync.Mutex
	group, ctx := guard.GroupWithContext(ctx, "rights of a user of the UI")
	group.SetLimit(reviewLimit)
	for _, s := range scopes {
		mu.Lock()
		known, ok := p.rights[s]
		mu.Unlock()
		if ok && now.Sub(known.at) < reviewTTL {
			continue
		}
		group.Go(func() error {
			resource := p.resources[s.Kind]
			granted, err := p.reviewer.Allowed(ctx, p.user, &authorizationv1.ResourceAttributes{Verb: "list",
				Group: resource.Group, Resource: resource.Resource, Namespace: s.Namespace})
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			p.rights[s] = right{granted: granted, at: now}
			return nil
		})
	}
	return group.Wait()
}

// forget removes rights that are outdated, so that their number is bounded by that of the scopes that exist.
func (p *person) forget() {
	now := p.Now()
	for s, known := range p.rights {
		if now.Sub(known.at) >= reviewTTL {
			delete(p.rights, s)
		}
	}
}
