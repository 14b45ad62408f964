package health

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/sluice-gitops/sluice/internal/cluster/kubewatch"
	"github.com/sluice-gitops/sluice/internal/cluster/resourceversion"
)

// Result is the health of a target.
type Result struct {
	Target    Target
	Status    string // one of the statuses of kstatus
	Message   string // from kstatus or from the object
	HadFailed bool   // for a target that is NotFound: whether it failed before it was deleted
}

type (
	store = kubewatch.Store[*unstructured.Unstructured, observation, *subscription]
	watch = kubewatch.Watch[*unstructured.Unstructured, observation, *subscription]
)

// Watcher watches the health of targets for many owners. Owners share watches. It is safe for concurrent use.
type Watcher struct {
	dynamic  dynamic.Interface
	mapper   meta.ResettableRESTMapper
	onChange func(owner string)
	turns    *turns // of checks
	causes   causes

	mu          sync.Mutex
	closed      bool
	owners      map[string]map[Target]*subscription
	store       *store
	established map[schema.GroupKind]map[string]*meta.RESTMapping // by version: missing kinds whose definition came
	changed     map[string]bool                                   // owners to notify once the lock is released
}

// subscription is one target of an owner. The watcher's lock guards it.
type subscription struct {
	owner      string
	target     Target
	name       types.NamespacedName // in its watch
	watch      *watch               // nil while the cluster does not serve the kind
	minVersion string               // older observations of the object do not count
	failed     bool                 // whether the object failed since it was written, and did not recover
	result     Result
}

// NewWatcher returns a watcher that calls onChange when the status of one of an owner's targets changed. OnChange must
// not block, and must not call the watcher.
func NewWatcher(d dynamic.Interface, m meta.ResettableRESTMapper, onChange func(owner string)) *Watcher {
	w := &Watcher{
		dynamic: d, mapper: m, onChange: onChange, turns: newTurns(processors),
		owners: map[string]map[Target]*subscription{}, changed: map[string]bool{},
		established: map[schema.GroupKind]map[string]*meta.RESTMapping{},
	}
	w.store = kubewatch.New(&w.mu, kubewatch.Dynamic(d),
		kubewatch.Handler[*unstructured.Unstructured, observation, *subscription]{
			Object:   w.observeDefinition,
			Whole:    func(k kubewatch.Key) bool { return k == definitionKey },
			Changed:  func(_ *watch, list []*subscription) { w.update(list...) },
			Refused:  w.refused,
			Unserved: w.unserved,
			Unlocked: w.notify,
		})
	return w
}

// SetTargets replaces the targets of an owner, and the checks that apply to them instead of kstatus. The first check
// that covers a target applies. Targets that the owner had before keep their watches.
func (w *Watcher) SetTargets(owner string, targets []Target, checks ...*Check) {
	keys := w.keys(targets, checks)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	before, after := w.owners[owner], make(map[Target]*subscription, len(targets))
	for t, key := range keys {
		s := before[t]
		if s == nil || s.key() != key.Key {
			next := &subscription{owner: owner, target: t}
			if s != nil {
				next.minVersion = s.minVersion
			}
			s = next
			w.subscribe(s, key)
		} else if s.watch != nil {
			s.watch.Resume() // the right may have been granted since
		}
		after[t] = s
	}
	for t, s := range before {
		if after[t] != s {
			w.unsubscribe(s)
		}
	}
	if w.owners[owner] = after; len(after) == 0 {
		delete(w.owners, owner)
		w.ForgetCause(owner)
	}
	w.watchDefinitions()
}

func (s *subscription) key() kubewatch.Key {
	if s.watch == nil {
		return kubewatch.Key{}
	}
	return s.watch.Key()
}

// ExpectVersion records that the owner has just written a target, which then had this resource version. Until the
// watch has come to that version, the target is InProgress.
func (w *Watcher) ExpectVersion(owner string, t Target, version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.owners[owner][t]; s != nil {
		s.minVersion, s.failed = version, false
		s.result = s.evaluate()
	}
}

// Results returns the health of an owner's targets, ordered by name. Synced is false while a target has not been
// observed yet; onChange is called when it is.
func (w *Watcher) Results(owner string) (results []Result, synced bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	synced = true
	for _, s := range w.owners[owner] {
		synced = synced && (s.watch == nil || s.watch.Synced() || s.watch.Refusal() != nil)
		results = append(results, s.result)
	}
	slices.SortFunc(results, func(a, b Result) int { return cmp.Compare(a.Target.String(), b.Target.String()) })
	return results, synced
}

// Forget removes an owner, and the watches that no other owner uses.
func (w *Watcher) Forget(owner string) { w.SetTargets(owner, nil) }

// Close stops all watches. OnChange is not called after it.
func (w *Watcher) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for owner := range w.owners {
		w.ForgetCause(owner)
	}
	w.store.Close()
}

// subscribe adds a subscription to its watch. The caller holds the lock.
func (w *Watcher) subscribe(s *subscription, key targetKey) {
	s.name = key.name
	if key.Key != (kubewatch.Key{}) {
		s.watch = w.store.Watch(key.Key, observeWith(key.check, w.turns))
		s.watch.Subscribe(s.name, s)
	}
	s.result = s.evaluate()
}

// unsubscribe removes a subscription, and its watch if it was the last one. The caller holds the lock.
func (w *Watcher) unsubscribe(s *subscription) {
	if s.watch == nil {
		return
	}
	s.watch.Unsubscribe(s.name, s)
	if !s.watch.HasSubscribers() {
		w.store.Remove(s.watch)
	}
}

// refused updates the subscriptions of a watch that the cluster does not allow.
func (w *Watcher) refused(wt *watch) {
	for _, s := range wt.Subscribers() {
		w.update(s)
	}
}

// unserved handles a kind that the cluster no longer serves.
func (w *Watcher) unserved(wt *watch) {
	w.mapper.Reset() // discovery is outdated
	for _, s := range wt.Subscribers() {
		s.watch = nil
	}
	w.watchDefinitions()
	for _, s := range wt.Subscribers() {
		w.update(s)
	}
}

// update evaluates subscriptions again, and records the owners for which a status changed. The caller holds the lock.
func (w *Watcher) update(list ...*subscription) {
	for _, s := range list {
		r := s.evaluate()
		if r.Status != s.result.Status {
			w.changed[s.owner] = true
		}
		s.result = r
	}
}

// notify calls onChange for the recorded owners. The caller does not hold the lock.
func (w *Watcher) notify() {
	w.mu.Lock()
	changed := w.changed
	if len(changed) > 0 {
		w.changed = map[string]bool{}
	}
	closed := w.closed
	w.mu.Unlock()
	if closed {
		return
	}
	for owner := range changed {
		w.onChange(owner)
	}
}

// evaluate returns the health of a target by what its watch has observed. The caller holds the lock.
func (s *subscription) evaluate() Result {
	r := Result{Target: s.target}
	switch {
	case s.watch == nil:
		r.Status = NotFound
		r.Message = "the cluster does not serve kind " + s.target.Kind + " of " + s.target.groupVersion()
		return r
	case s.watch.Refusal() != nil:
		r.Status, r.Message = Unknown, "may not be watched: "+s.watch.Refusal().Error()
		return r
	case !s.watch.Synced():
		r.Status, r.Message = Unknown, "not observed yet"
		return r
	}
	o, found := s.watch.Value(s.name)
	switch {
	case isNewer(s.minVersion, o.version) && (found || isNewer(s.minVersion, s.watch.ResourceVersion())):
		r.Status, r.Message = InProgress, "not observed since it was applied"
	case !found:
		r.Status, r.Message, r.HadFailed = NotFound, "the object does not exist", s.failed
		if s.failed {
			r.Message = "the object failed and was deleted"
		}
	default:
		r.Status, r.Message = o.status, o.message
		s.failed = r.Status == Failed || r.Status == Terminating && s.failed
	}
	return r
}

// isNewer reports whether resource version a is newer than b. Versions that are not numbers have no order. If b is
// empty, any version is newer.
func isNewer(a, b string) bool {
	if b == "" {
		return a != ""
	}
	return resourceversion.Newer(a, b)
}
