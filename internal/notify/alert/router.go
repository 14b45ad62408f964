package alert

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/api/notification/v1beta3"
	"github.com/sluice-gitops/sluice/internal/notify/delivery"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// Labels returns the labels of an object of a kind; none of what is not known.
type Labels func(ctx context.Context, kind string, key types.NamespacedName) labels.Set

// Router finds the alerts that want an event. It is kept by informers, and answers from memory.
type Router struct {
	NoCrossNamespaceRefs bool
	Labels               Labels
	Warn                 func(a *v1beta3.Alert, message string) // tells of an Alert what does not stop it
	Gone                 func(provider types.NamespacedName)    // hears of Providers that are no more

	synced []cache.InformerSynced
	ready  atomic.Bool // all are

	mu        sync.RWMutex
	rules     map[types.NamespacedName]*rule
	providers map[types.NamespacedName]*v1beta3.Provider // of the cache: they are read only
	// made of the rules by the next event after a change; nil until then
	index map[target][]candidate
}

// candidate is a source of a rule.
type candidate struct {
	*rule
	source
}

// Observe keeps the router by the cache.
func (r *Router) Observe(ctx context.Context, c ctrlcache.Cache) error {
	r.rules, r.providers = map[types.NamespacedName]*rule{}, map[types.NamespacedName]*v1beta3.Provider{}
	return errors.Join(observe(ctx, r, c, &v1beta3.Alert{}, r.setAlert),
		observe(ctx, r, c, &v1beta3.Provider{}, r.setProvider))
}

// observe calls set with each object that is there or changes, and with nil when it goes.
func observe[T client.Object](ctx context.Context, r *Router, c ctrlcache.Cache, obj T,
	set func(key types.NamespacedName, obj T)) error {
	informer, err := c.GetInformer(ctx, obj)
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if obj, ok := o.(T); ok {
				set(client.ObjectKeyFromObject(obj), obj)
			}
		},
		UpdateFunc: func(_, o any) {
			if obj, ok := o.(T); ok {
				set(client.ObjectKeyFromObject(obj), obj)
			}
		},
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			var gone T
			if obj, ok := o.(T); ok {
				set(client.ObjectKeyFromObject(obj), gone)
			}
		},
	})
	if err == nil {
		r.synced = append(r.synced, registration.HasSynced)
	}
	return err
}

func (r *Router) setProvider(key types.NamespacedName, p *v1beta3.Provider) {
	r.mu.Lock()
	if r.providers[key] = p; p == nil {
		delete(r.providers, key)
	}
	r.mu.Unlock()
	if p == nil {
		r.Gone(key)
	}
}

// setAlert compiles an Alert. One that cannot be used is left out; its controller tells why.
func (r *Router) setAlert(key types.NamespacedName, a *v1beta3.Alert) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.rules[key]
	if a != nil && before != nil && before.alert.UID == a.UID && before.alert.Generation == a.Generation {
		return
	}
	delete(r.rules, key)
	if a != nil && !a.Spec.Suspend {
		if compiled, err := compile(a, r.NoCrossNamespaceRefs); err == nil {
			r.rules[key] = compiled
		}
	}
	r.index = nil
}

// provider returns a Provider of the cache, or nil.
func (r *Router) provider(key types.NamespacedName) *v1beta3.Provider {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.providers[key]
}

// document returns an Alert as expressions read it; nil when it is no more.
func (r *Router) document(key types.NamespacedName) map[string]any {
	r.mu.RLock()
	defer r.mu.RUnlock()
	rule := r.rules[key]
	if rule == nil {
		return nil
	}
	document, err := runtime.DefaultUnstructuredConverter.ToUnstructured(rule.alert)
	if err != nil {
		return nil
	}
	return document
}

// candidates returns the sources that may be those of an event.
func (r *Router) candidates(kind, namespace string) []candidate {
	r.mu.RLock()
	index := r.index
	r.mu.RUnlock()
	if index == nil {
		index = r.build()
	}
	here, anywhere := index[target{kind, namespace}], index[target{kind, v1beta3.Any}]
	return append(here[:len(here):len(here)], anywhere...)
}

func (r *Router) build() map[target][]candidate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.index == nil {
		r.index = map[target][]candidate{}
		for _, rule := range r.rules {
			for _, s := range rule.sources {
				r.index[s.target] = append(r.index[s.target], candidate{rule, s})
			}
		}
	}
	return r.index
}

// Ready waits until the router knows all alerts and Providers there are, or ctx ends.
func (r *Router) Ready(ctx context.Context) bool {
	if !r.ready.Load() && cache.WaitForCacheSync(ctx.Done(), r.synced...) {
		r.ready.Store(true)
	}
	return r.ready.Load()
}

// Route implements [delivery.Router]. It waits until it knows all alerts there are: an event that comes first
// is none for nobody.
func (r *Router) Route(ctx context.Context, e event.Event) []delivery.Delivery {
	if !r.Ready(ctx) {
		return nil
	}
	object := e.InvolvedObject
	if group := e.Group(); group != "" && group != notificationv1.GroupOf(object.Kind) {
		return nil // another kind of the same name
	}
	known, asked := labels.Set(nil), false
	named := func(s source) bool {
		if s.labels == nil {
			return s.name == v1beta3.Any || s.name == object.Name
		}
		if !asked {
			known = r.Labels(ctx, object.Kind, types.NamespacedName{Namespace: object.Namespace, Name: object.Name})
			asked = true
		}
		return s.labels.Matches(known)
	}
	var wanted []delivery.Delivery
	decided := map[*rule]bool{}
	for _, c := range r.candidates(object.Kind, object.Namespace) {
		if decided[c.rule] || !named(c.source) {
			continue
		}
		decided[c.rule] = true // by the first source that has the object: the rest is the same for all
		if d, ok := r.deliver(ctx, c.rule, e); ok {
			wanted = append(wanted, d)
		}
	}
	return wanted
}

func (r *Router) deliver(ctx context.Context, rule *rule, e event.Event) (delivery.Delivery, bool) {
	p := r.provider(rule.provider)
	if p == nil || p.Spec.Suspend || !rule.wants(&e) {
		return delivery.Delivery{}, false
	}
	metadata, conflicts := rule.metadata(&e)
	if !takes(p.Spec.Type, metadata) {
		return delivery.Delivery{}, false
	}
	if untold := rule.news(conflicts); len(untold) > 0 {
		keys := strings.Join(untold, ", ")
		log.FromContext(ctx).Info("metadata of an event is set twice", "alert", rule.key(), "keys", keys)
		r.Warn(rule.alert, "the metadata "+keys+" of events of "+e.InvolvedObject.Kind+" '"+e.InvolvedObject.Namespace+
			"/"+e.InvolvedObject.Name+
			"' is set more than once: what the controller says counts before spec.summary, spec.eventMetadata and "+
			"the object's annotations")
	}
	e.Metadata = metadata
	return delivery.Delivery{Alert: rule.key(), Provider: rule.provider, Event: e}, true
}
