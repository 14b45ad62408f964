package health

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// rewatch is how soon a watch that broke is begun again; one that lasted rewatchReset is taken as sound.
var rewatch = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 10, Cap: 30 * time.Second}

const rewatchReset = 2 * time.Minute

// watchKey says what a watch covers: the objects of a resource in a namespace, or one of them.
type watchKey struct {
	resource  schema.GroupVersionResource
	namespace string
	name      string // empty for all
	check     string // the ID of the Check that judges them; empty for kstatus
}

// targetKey is a target's watch, and its name there. The watch is empty if the cluster does not serve the kind.
type targetKey struct {
	watchKey
	name  types.NamespacedName
	check *Check
}

// seen is all that is kept of an object.
type seen struct{ version, status, message string }

// watch is a running watch. It is the store of its reflector, but keeps what kstatus says, not the objects.
// The watcher's lock guards it.
type watch struct {
	watcher *Watcher
	key     watchKey
	check   *Check             // nil for kstatus
	cancel  context.CancelFunc // nil while it does not run

	synced  bool   // it knows of all objects that it covers
	refused error  // the cluster does not let us watch this
	newest  string // the resource version that it has come to
	seen    map[types.NamespacedName]seen
	asked   map[types.NamespacedName][]*asked
}

func newWatch(w *Watcher, key watchKey, check *Check) *watch {
	return &watch{watcher: w, key: key, check: check, seen: map[types.NamespacedName]seen{},
		asked: map[types.NamespacedName][]*asked{}}
}

// keys finds the watch for each target: one for all where an owner asks for several of a namespace, else one for the
// object alone, for which a narrow right is enough.
func (w *Watcher) keys(targets []Target, checks []*Check) map[Target]targetKey {
	keys := make(map[Target]targetKey, len(targets))
	count := map[watchKey]int{}
	reset := false
	for _, t := range targets {
		if _, twice := keys[t]; twice {
			continue
		}
		mapping := w.mapping(t, &reset)
		if mapping == nil {
			keys[t] = targetKey{}
			continue
		}
		k := targetKey{watchKey: watchKey{resource: mapping.Resource}, name: types.NamespacedName{Name: t.Name}}
		if i := slices.IndexFunc(checks, func(c *Check) bool { return c.covers(mapping.GroupVersionKind) }); i >= 0 {
			k.check, k.watchKey.check = checks[i], checks[i].id
		}
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			k.namespace, k.name.Namespace = t.Namespace, t.Namespace
		}
		keys[t] = k
		count[k.watchKey]++
	}
	for t, k := range keys {
		if k.watchKey != (watchKey{}) && count[k.watchKey] == 1 {
			k.watchKey.name = t.Name
			keys[t] = k
		}
	}
	return keys
}

// start runs the watch unless it runs. The caller holds the lock.
func (wt *watch) start() {
	if wt.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	wt.cancel = cancel
	resource := wt.watcher.dynamic.Resource(wt.key.resource).Namespace(wt.key.namespace)
	narrow := func(o metav1.ListOptions) metav1.ListOptions {
		if wt.key.name != "" {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, wt.key.name).String()
		}
		return o
	}
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return resource.List(ctx, narrow(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			return resource.Watch(ctx, narrow(o))
		},
	}, wt.watcher.dynamic), &unstructured.Unstructured{}, wt, cache.ReflectorOptions{
		Name: "health of " + wt.key.resource.String(), TypeDescription: wt.key.resource.String(),
	})
	go func() {
		_ = rewatch.DelayWithReset(clock.RealClock{}, rewatchReset).
			Until(ctx, true, true, func(ctx context.Context) (bool, error) {
				err := reflector.ListAndWatchWithContext(ctx)
				return ctx.Err() != nil || wt.broken(err), nil
			}) // ends with the context, or once the watch is refused
	}()
}

func (wt *watch) stop() {
	if wt.cancel != nil {
		wt.cancel()
		wt.cancel = nil
	}
}

// broken takes in that the watch ended, and tells whether it is given up.
func (wt *watch) broken(err error) bool {
	w, changed := wt.watcher, map[string]bool{}
	defer func() { w.tell(changed) }()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watches[wt.key] != wt {
		return true
	}
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsMethodNotSupported(err):
		wt.stop()
		wt.refused, wt.synced = err, false
	case apierrors.IsNotFound(err): // the kind is no longer served, and its objects are gone with it
		wt.stop()
		w.mapper.Reset() // what was discovered is no longer true
		delete(w.watches, wt.key)
		for _, list := range wt.asked {
			for _, a := range list {
				a.watch = nil
			}
		}
		w.seekKinds()
	default:
		return false
	}
	for _, list := range wt.asked {
		update(list, changed)
	}
	return true
}

func (wt *watch) compute(u *unstructured.Unstructured) seen {
	if wt.check != nil {
		return wt.check.compute(u)
	}
	return compute(u)
}

// note takes in an event.
func (wt *watch) note(obj any, gone bool) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	name := types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}
	now := wt.compute(u)
	w, changed := wt.watcher, map[string]bool{}
	w.mu.Lock()
	wt.newest = now.version
	if gone {
		delete(wt.seen, name)
	} else {
		wt.seen[name] = now
	}
	update(wt.asked[name], changed)
	if wt.key == definitionKey {
		w.defined(u, gone, changed)
	}
	w.mu.Unlock()
	w.tell(changed)
	return nil
}

// Add takes in an event of the watch; so do Update and Delete.
func (wt *watch) Add(obj any) error { return wt.note(obj, false) }

// Update takes in an event of the watch.
func (wt *watch) Update(obj any) error { return wt.note(obj, false) }

// Delete takes in an event of the watch.
func (wt *watch) Delete(obj any) error { return wt.note(obj, true) }

// Replace takes in a complete list: what is not in it is gone.
func (wt *watch) Replace(list []any, version string) error {
	w, changed := wt.watcher, map[string]bool{}
	all := make(map[types.NamespacedName]seen, len(list))
	w.mu.Lock()
	for _, obj := range list {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			all[types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}] = wt.compute(u)
			if wt.key == definitionKey {
				w.defined(u, false, changed)
			}
		}
	}
	wt.seen, wt.newest, wt.synced, wt.refused = all, version, true, nil
	for _, asked := range wt.asked {
		update(asked, changed)
	}
	w.mu.Unlock()
	w.tell(changed)
	return nil
}

// Bookmark takes in how far the watch has come.
func (wt *watch) Bookmark(version string) error {
	w, changed := wt.watcher, map[string]bool{}
	w.mu.Lock()
	wt.newest = version
	for _, asked := range wt.asked {
		update(asked, changed)
	}
	w.mu.Unlock()
	w.tell(changed)
	return nil
}

// Resync is of no meaning here.
func (wt *watch) Resync() error { return nil }
