package health

import (
	"context"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// Statuses of kstatus.
const (
	Current    = string(status.CurrentStatus)
	InProgress = string(status.InProgressStatus)
	Failed     = string(status.FailedStatus)
	NotFound   = string(status.NotFoundStatus)
	Unknown    = string(status.UnknownStatus)
)

// Result is the health of a target.
type Result struct {
	Target  Target
	Status  string
	Message string
}

// Watcher keeps the health of targets of many owners over shared watches. It is safe for concurrent use.
type Watcher struct {
	dynamic  dynamic.Interface
	mapper   meta.ResettableRESTMapper
	onChange func(owner string)

	mu      sync.Mutex
	owners  map[string]map[Target]Result
	watches map[watchKey]*watch
}

// watchKey says what a watch covers: the objects of a resource in a namespace, or one of them.
type watchKey struct {
	resource  schema.GroupVersionResource
	namespace string
	name      string // empty for all
}

// watch is a running watch and the targets that it answers for.
type watch struct {
	cancel  context.CancelFunc
	synced  func() bool
	refused error
	targets map[Target]map[string]bool // and the owners that ask
	store   cache.Store
}

// NewWatcher returns a watcher that calls onChange when the health of an owner's targets changed. OnChange must not block.
func NewWatcher(d dynamic.Interface, m meta.ResettableRESTMapper, onChange func(owner string)) *Watcher {
	return &Watcher{dynamic: d, mapper: m, onChange: onChange, owners: map[string]map[Target]Result{}, watches: map[watchKey]*watch{}}
}

// Set says which targets an owner asks for. What it asked for before and still does goes on being watched.
func (w *Watcher) Set(owner string, targets []Target) {
	keys := w.keys(targets)
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.owners[owner]
	now := make(map[Target]Result, len(targets))
	for _, t := range targets {
		if r, ok := was[t]; ok {
			now[t] = r
			continue
		}
		now[t] = Result{Target: t, Status: Unknown, Message: "not observed yet"}
	}
	w.owners[owner] = now
	for _, wt := range w.watches {
		for t, owners := range wt.targets {
			if _, ok := now[t]; !ok {
				delete(owners, owner)
			}
			if len(owners) == 0 {
				delete(wt.targets, t)
			}
		}
	}
	for t, key := range keys {
		if key == (watchKey{}) {
			now[t] = Result{Target: t, Status: NotFound, Message: "the cluster has no kind " + t.Kind}
			continue
		}
		w.join(owner, t, key)
	}
	for key, wt := range w.watches {
		if len(wt.targets) == 0 {
			wt.cancel()
			delete(w.watches, key)
		}
	}
	if len(targets) == 0 {
		delete(w.owners, owner)
	}
}

// keys finds the watch for each target: one for all where several stand in a namespace. A kind that is not served has none.
func (w *Watcher) keys(targets []Target) map[Target]watchKey {
	keys := map[Target]watchKey{}
	count := map[watchKey]int{}
	reset := false
	for _, t := range targets {
		gk := schema.GroupKind{Group: t.Group, Kind: t.Kind}
		mapping, err := w.mapper.RESTMapping(gk, t.Version)
		if meta.IsNoMatchError(err) && !reset {
			reset = true
			w.mapper.Reset()
			mapping, err = w.mapper.RESTMapping(gk, t.Version)
		}
		if err != nil {
			keys[t] = watchKey{}
			continue
		}
		k := watchKey{resource: mapping.Resource}
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			k.namespace = t.Namespace
		}
		keys[t] = k
		count[k]++
	}
	for t, k := range keys {
		if k != (watchKey{}) && count[k] == 1 {
			k.name = t.Name
			keys[t] = k
		}
	}
	return keys
}

// join adds an owner's interest in a target to its watch. The caller holds the lock.
func (w *Watcher) join(owner string, t Target, key watchKey) {
	wt := w.watches[key]
	if wt == nil {
		wt = w.start(key)
		w.watches[key] = wt
	}
	if wt.targets[t] == nil {
		wt.targets[t] = map[string]bool{}
	}
	wt.targets[t][owner] = true
	if wt.synced() {
		w.owners[owner][t] = w.look(wt, t)
	}
}

// look gives what the watch knows of a target now.
func (w *Watcher) look(wt *watch, t Target) Result {
	id := t.Name
	if t.Namespace != "" {
		id = t.Namespace + "/" + id
	}
	obj, ok, err := wt.store.GetByKey(id)
	if u, isResult := obj.(*unstructured.Unstructured); err == nil && ok && isResult {
		return read(u, t)
	}
	return Result{Target: t, Status: NotFound, Message: "not found"}
}

// start runs a watch. The caller holds the lock.
func (w *Watcher) start(key watchKey) *watch {
	ctx, cancel := context.WithCancel(context.Background())
	informer := dynamicinformer.NewFilteredDynamicInformer(w.dynamic, key.resource, key.namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		if key.name != "" {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, key.name).String()
		}
	}).Informer()
	wt := &watch{cancel: cancel, synced: informer.HasSynced, targets: map[Target]map[string]bool{}, store: informer.GetStore()}
	_ = informer.SetTransform(slim) // fails only on an informer that has started
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			w.refuse(wt, err)
		}
	})
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { w.observe(wt, obj, false) },
		UpdateFunc: func(_, obj any) { w.observe(wt, obj, false) },
		DeleteFunc: func(obj any) {
			if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = t.Obj
			}
			w.observe(wt, obj, true)
		},
	})
	go informer.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			w.settle(wt)
		}
	}()
	return wt
}

// resultAnnotations carry what kstatus says, in place of the object itself.
const (
	statusAnnotation  = "sluice/status"
	messageAnnotation = "sluice/message"
)

// slim computes an object's health and keeps nothing else of it.
func slim(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || u.GetAnnotations()[statusAnnotation] != "" {
		return obj, nil
	}
	s, message := Unknown, ""
	if r, err := status.Compute(u); err == nil {
		s, message = string(r.Status), r.Message
	} else {
		message = err.Error()
	}
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(u.GroupVersionKind())
	out.SetNamespace(u.GetNamespace())
	out.SetName(u.GetName())
	out.SetUID(u.GetUID())
	out.SetResourceVersion(u.GetResourceVersion())
	out.SetAnnotations(map[string]string{statusAnnotation: s, messageAnnotation: message})
	return out, nil
}

func read(u *unstructured.Unstructured, t Target) Result {
	a := u.GetAnnotations()
	return Result{Target: t, Status: a[statusAnnotation], Message: a[messageAnnotation]}
}

// observe takes in what a watch says of an object.
func (w *Watcher) observe(wt *watch, obj any, gone bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return
	}
	w.update(wt, func(t Target) (Result, bool) {
		if t.Name != u.GetName() || t.Namespace != u.GetNamespace() {
			return Result{}, false
		}
		if gone {
			return Result{Target: t, Status: NotFound, Message: "not found"}, true
		}
		return read(u, t), true
	})
}

// settle says of all targets what the first list came to.
func (w *Watcher) settle(wt *watch) {
	w.update(wt, func(t Target) (Result, bool) { return w.look(wt, t), true })
}

func (w *Watcher) refuse(wt *watch, err error) {
	w.mu.Lock()
	wt.refused = err
	w.mu.Unlock()
	w.update(wt, func(t Target) (Result, bool) {
		return Result{Target: t, Status: Unknown, Message: "may not be watched: " + err.Error()}, true
	})
}

// update changes the results of a watch's targets and tells the owners for whom something did change.
func (w *Watcher) update(wt *watch, result func(Target) (Result, bool)) {
	var changed []string
	w.mu.Lock()
	for t, owners := range wt.targets {
		r, ok := result(t)
		if !ok {
			continue
		}
		for owner := range owners {
			if targets := w.owners[owner]; targets != nil && targets[t] != r {
				targets[t] = r
				if !slices.Contains(changed, owner) {
					changed = append(changed, owner)
				}
			}
		}
	}
	w.mu.Unlock()
	for _, owner := range changed {
		w.onChange(owner)
	}
}

// Results returns the health of an owner's targets, ordered by their names. Synced is false while some were not observed yet.
func (w *Watcher) Results(owner string) (results []Result, synced bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	synced = true
	for _, r := range w.owners[owner] {
		synced = synced && r.Message != "not observed yet"
		results = append(results, r)
	}
	slices.SortFunc(results, func(a, b Result) int {
		if a.Target.String() < b.Target.String() {
			return -1
		}
		return 1
	})
	return results, synced
}

// Forget drops an owner and the watches that nobody else needs.
func (w *Watcher) Forget(owner string) { w.Set(owner, nil) }

// Close stops all watches.
func (w *Watcher) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, wt := range w.watches {
		wt.cancel()
		delete(w.watches, k)
	}
}
