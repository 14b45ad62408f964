package health

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/dynamic"
)

// Result is the health of a target.
type Result struct {
	Target    Target
	Status    string
	Message   string // in the words of kstatus, or of the object
	HadFailed bool   // whether it had failed when it went, for one that is NotFound
}

// Watcher keeps the health of targets of many owners over shared watches. It is safe for concurrent use.
type Watcher struct {
	dynamic  dynamic.Interface
	mapper   meta.ResettableRESTMapper
	onChange func(owner string)

	mu      sync.Mutex
	closed  bool
	owners  map[string]map[Target]*asked
	watches map[watchKey]*watch
	brought map[schema.GroupKind]map[string]*meta.RESTMapping // by version: kinds that somebody waited for
}

// asked is what an owner asks for. The watcher's lock guards it.
type asked struct {
	owner  string
	target Target
	name   types.NamespacedName // in its watch
	watch  *watch               // nil while the cluster does not serve the kind
	newest string               // the resource version below which the object is not what the owner means
	failed bool                 // whether it failed since it was written, and did not recover
	result Result
}

// NewWatcher returns a watcher that calls onChange when the status of one of an owner's targets changed. OnChange must
// not block, and must not call the watcher.
func NewWatcher(d dynamic.Interface, m meta.ResettableRESTMapper, onChange func(owner string)) *Watcher {
	return &Watcher{
		dynamic: d, mapper: m, onChange: onChange,
		owners: map[string]map[Target]*asked{}, watches: map[watchKey]*watch{},
		brought: map[schema.GroupKind]map[string]*meta.RESTMapping{},
	}
}

// Set says which targets an owner asks for, and the checks that judge them where kstatus does not; the first
// that covers a target counts. What it asked for before and still does goes on being watched.
func (w *Watcher) SetTargets(owner string, targets []Target, checks ...*Check) {
	keys := w.keys(targets, checks)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	was, now := w.owners[owner], make(map[Target]*asked, len(targets))
	for t, key := range keys {
		a := was[t]
		if a == nil || a.key() != key.watchKey {
			next := &asked{owner: owner, target: t}
			if a != nil {
				next.newest = a.newest
			}
			a = next
			w.join(a, key)
		} else if a.watch != nil && a.watch.refused != nil {
			a.watch.start() // the right may have been granted since
		}
		now[t] = a
	}
	for t, a := range was {
		if now[t] != a {
			w.leave(a)
		}
	}
	if w.owners[owner] = now; len(now) == 0 {
		delete(w.owners, owner)
	}
	w.seekKinds()
}

func (a *asked) key() watchKey {
	if a.watch == nil {
		return watchKey{}
	}
	return a.watch.key
}

// Expect says that the owner just wrote a target, which then had this resource version. What the watch saw
// before that is not what the owner asks for, and is not told.
func (w *Watcher) ExpectVersion(owner string, t Target, version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.owners[owner][t]; a != nil {
		a.newest, a.failed = version, false
		a.result = a.look()
	}
}

// Results returns the health of an owner's targets, ordered by their names. Synced is false while something was not
// observed yet; onChange tells when it is.
func (w *Watcher) Results(owner string) (results []Result, synced bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	synced = true
	for _, a := range w.owners[owner] {
		synced = synced && (a.watch == nil || a.watch.synced || a.watch.refused != nil)
		results = append(results, a.result)
	}
	slices.SortFunc(results, func(a, b Result) int { return cmp.Compare(a.Target.String(), b.Target.String()) })
	return results, synced
}

// Forget drops an owner and the watches that nobody else needs.
func (w *Watcher) Forget(owner string) { w.SetTargets(owner, nil) }

// Close stops all watches. OnChange is not called after it.
func (w *Watcher) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for k, wt := range w.watches {
		wt.stop()
		delete(w.watches, k)
	}
}

// join adds what an owner asks for to its watch. The caller holds the lock.
func (w *Watcher) join(a *asked, key targetKey) {
	a.name = key.name
	if key.watchKey != (watchKey{}) {
		wt := w.watches[key.watchKey]
		if wt == nil {
			wt = newWatch(w, key.watchKey, key.check)
			w.watches[key.watchKey] = wt
			wt.start()
		}
		a.watch = wt
		wt.asked[a.name] = append(wt.asked[a.name], a)
	}
	a.result = a.look()
}

// leave takes back what an owner asked for, and stops the watch if it was the last. The caller holds the lock.
func (w *Watcher) leave(a *asked) {
	wt := a.watch
	if wt == nil {
		return
	}
	wt.asked[a.name] = slices.DeleteFunc(wt.asked[a.name], func(o *asked) bool { return o == a })
	if len(wt.asked[a.name]) == 0 {
		delete(wt.asked, a.name)
	}
	if len(wt.asked) == 0 {
		wt.stop()
		delete(w.watches, wt.key)
	}
}

// look gives the health of what is asked for, by what its watch knows. The caller holds the lock.
func (a *asked) look() Result {
	r := Result{Target: a.target}
	wt := a.watch
	switch {
	case wt == nil:
		r.Status, r.Message = NotFound, "the cluster does not serve kind "+a.target.Kind+" of "+a.target.groupVersion()
		return r
	case wt.refused != nil:
		r.Status, r.Message = Unknown, "may not be watched: "+wt.refused.Error()
		return r
	case !wt.synced:
		r.Status, r.Message = Unknown, "not observed yet"
		return r
	}
	seen, found := wt.seen[a.name]
	switch {
	case after(a.newest, seen.version) && (found || after(a.newest, wt.newest)):
		r.Status, r.Message = InProgress, "not observed since it was applied"
	case !found:
		r.Status, r.Message, r.HadFailed = NotFound, "there is no such object", a.failed
		if a.failed {
			r.Message = "it failed, and is gone"
		}
	default:
		r.Status, r.Message = seen.status, seen.message
		a.failed = r.Status == Failed || r.Status == Terminating && a.failed
	}
	return r
}

// after tells whether resource version a is newer than b. Versions that are not numbers are in no order; none is newer
// than b if b is unknown, unless a is given.
func after(a, b string) bool {
	if b == "" {
		return a != ""
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// update judges anew what is asked for, and notes the owners for whom a status changed. The caller holds the lock.
func update(list []*asked, changed map[string]bool) {
	for _, a := range list {
		r := a.look()
		if r.Status != a.result.Status {
			changed[a.owner] = true
		}
		a.result = r
	}
}

// tell calls onChange. The caller does not hold the lock.
func (w *Watcher) tell(changed map[string]bool) {
	for owner := range changed {
		w.onChange(owner)
	}
}
