package alert

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/notify/delivery"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// Labels returns the labels of an object; nil if it does not exist.
type Labels func(ctx context.Context, kind string, key types.NamespacedName) labels.Set

// Router finds the Alerts that select an event. Informers keep it up to date; it answers from memory.
type Router struct {
	NoCrossNamespaceRefs bool
	PlatformNamespace    string // Alerts in this namespace receive the whole events of all namespaces
	Labels               Labels
	Warn                 func(a *notificationv1.Alert, message string) // reports a problem that does not stop the Alert
	Deleted              func(provider types.NamespacedName)           // is called for each deleted Provider

	synced []cache.InformerSynced
	ready  atomic.Bool // all informers are synced

	mu        sync.RWMutex
	rules     map[types.NamespacedName]*rule
	providers map[types.NamespacedName]*notificationv1.Provider // from the cache, read-only
	// index is built by the first event after a change of the rules; nil until then.
	index map[target][]candidate
}

// candidate is a source and its rule.
type candidate struct {
	*rule
	source
}

// Observe registers the router with the informers of a cache.
func (r *Router) Observe(ctx context.Context, c ctrlcache.Cache) error {
	r.rules, r.providers = map[types.NamespacedName]*rule{}, map[types.NamespacedName]*notificationv1.Provider{}
	return errors.Join(observe(ctx, r, c, &notificationv1.Alert{}, r.setAlert),
		observe(ctx, r, c, &notificationv1.Provider{}, r.setProvider))
}

// observe calls set with each object that exists or changes, and with nil when it is deleted.
func observe[T client.Object](ctx context.Context, r *Router, c ctrlcache.Cache, obj T,
	set func(key types.NamespacedName, obj T)) error {
	informer, err := c.GetInformer(ctx, obj)
	if err != nil {
		return err
	}
	handler := cache.ResourceEventHandlerFuncs{
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
			var none T
			if obj, ok := o.(T); ok {
				set(client.ObjectKeyFromObject(obj), none)
			}
		},
	}
	registration, err := informer.AddEventHandler(guard.EventHandler("observing alerts", handler))
	if err == nil {
		r.synced = append(r.synced, registration.HasSynced)
	}
	return err
}

func (r *Router) setProvider(key types.NamespacedName, p *notificationv1.Provider) {
	r.mu.Lock()
	if r.providers[key] = p; p == nil {
		delete(r.providers, key)
	}
	r.mu.Unlock()
	if p == nil {
		r.Deleted(key)
	}
}

// setAlert compiles an Alert. An invalid one is ignored; its controller reports why.
func (r *Router) setAlert(key types.NamespacedName, a *notificationv1.Alert) {
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

// provider returns a Provider from the cache, or nil.
func (r *Router) provider(key types.NamespacedName) *notificationv1.Provider {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.providers[key]
}

// document returns an Alert as the variable of expressions; nil if it does not exist.
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

// candidates returns the sources that select a kind in a namespace.
func (r *Router) candidates(kind, namespace string) []candidate {
	r.mu.RLock()
	index := r.index
	r.mu.RUnlock()
	if index == nil {
		index = r.buildIndex()
	}
	inNamespace, anywhere := index[target{kind, namespace}], index[target{kind, notificationv1.Any}]
	return append(slices.Clip(inNamespace), anywhere...)
}

func (r *Router) buildIndex() map[target][]candidate {
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

// Ready waits until all Alerts and Providers are loaded or ctx is done. It reports whether they are loaded.
func (r *Router) Ready(ctx context.Context) bool {
	if !r.ready.Load() && cache.WaitForCacheSync(ctx.Done(), r.synced...) {
		r.ready.Store(true)
	}
	return r.ready.Load()
}

// Route implements [delivery.Router]. It waits until all Alerts are loaded.
func (r *Router) Route(ctx context.Context, e event.Event) []delivery.Delivery {
	if !r.Ready(ctx) {
		return nil
	}
	object := e.InvolvedObject
	if group := e.Group(); group != "" && group != notificationv1.GroupOf(object.Kind) {
		return nil // a kind of the same name in another group
	}
	var objectLabels labels.Set
	labelsLoaded := false
	selects := func(s source) bool {
		if isNamed := s.name == notificationv1.Any || s.name == object.Name; !isNamed || s.labels == nil {
			return isNamed
		}
		if !labelsLoaded {
			objectLabels = r.Labels(ctx, object.Kind,
				types.NamespacedName{Namespace: object.Namespace, Name: object.Name})
			labelsLoaded = true
		}
		return s.labels.Matches(objectLabels)
	}
	var deliveries []delivery.Delivery
	decided, work := map[*rule]bool{}, effort{}
	for _, c := range r.candidates(object.Kind, object.Namespace) {
		if decided[c.rule] || !selects(c.source) {
			continue
		}
		decided[c.rule] = true // the other sources of the rule give the same result
		if d, ok := r.deliver(ctx, c.rule, e, work); ok {
			deliveries = append(deliveries, d)
		}
	}
	return deliveries
}

func (r *Router) deliver(ctx context.Context, rule *rule, e event.Event, work effort) (delivery.Delivery, bool) {
	object, p := e.InvolvedObject, r.provider(rule.provider)
	if p == nil || p.Spec.Suspend || !rule.matches(&e, work) {
		return delivery.Delivery{}, false
	}
	metadata, conflicts := rule.metadata(&e)
	if !supports(p.Spec.Type, metadata) {
		return delivery.Delivery{}, false
	}
	if unreported := rule.unreported(conflicts); len(unreported) > 0 {
		keys := strings.Join(unreported, ", ")
		log.FromContext(ctx).Info("event metadata has conflicting values", "alert", rule.key(), "keys", keys)
		r.Warn(rule.alert, fmt.Sprintf("the metadata %s of events of %s '%s/%s' has conflicting values; the order of "+
			"precedence is: controller, spec.summary, spec.eventMetadata, annotations of the object",
			keys, object.Kind, object.Namespace, object.Name))
	}
	e.Metadata = metadata
	if rule.alert.Namespace != object.Namespace && rule.alert.Namespace != r.PlatformNamespace {
		e.Message = withoutDetails(e.Message, object.Namespace)
	}
	return delivery.Delivery{Alert: rule.key(), Provider: rule.provider, Event: e}, true
}

// withoutDetails removes the indented lines of a message, with the line that introduces them. They show contents of
// objects, such as what an apply changed, which an Alert of another namespace may not read.
func withoutDetails(message, namespace string) string {
	var kept []string
	removed := false
	for line := range strings.SplitSeq(message, "\n") {
		if !strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "\t") {
			kept = append(kept, line)
			continue
		}
		removed = true
		if last := len(kept) - 1; last > 0 && strings.HasSuffix(kept[last], ":") {
			kept = kept[:last]
		}
	}
	if removed {
		kept = append(kept, fmt.Sprintf("Differences are shown only to Alerts in namespace '%s'", namespace))
	}
	return strings.Join(kept, "\n")
}
