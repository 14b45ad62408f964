package apply

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/internal/resourceversion"
)

// rewatch is how soon a watch that broke is begun again.
var rewatch = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 10, Cap: 30 * time.Second}

// rewatchReset is how long a watch must last to be taken as sound again.
const rewatchReset = 2 * time.Minute

// watchKey says what a watch covers: the objects of a resource that carry an owner label of a group,
// everywhere or in one namespace.
type watchKey struct {
	resource  schema.GroupVersionResource
	group     string
	namespace string
}

// driftWatch is a watch of metadata, shared by all owners. It is the store of its reflector, but keeps marks,
// not objects. The cluster's lock guards it.
type driftWatch struct {
	cluster *Cluster
	key     watchKey
	cancel  context.CancelFunc // nil while it does not run

	synced  bool   // what it says is complete
	refused bool   // the cluster does not let us watch this; so until a watch succeeds
	newest  string // the resource version that it has come to
	seen    map[types.NamespacedName]mark
	applied map[types.NamespacedName][]*applied // of all owners that applied the object
}

// trusted tells whether an object that the watch did not say to have moved stands where it was.
func (w *driftWatch) trusted() bool { return w.synced && !w.refused }

// watchFor returns the watch that covers a resource in a namespace, and starts it unless it runs: one for all
// namespaces or, where that is refused, one for the namespace. The caller holds the lock.
func (c *Cluster) watchFor(resource schema.GroupVersionResource, namespace, group string) *driftWatch {
	w := c.ensure(watchKey{resource: resource, group: group})
	if w.refused && namespace != "" {
		w = c.ensure(watchKey{resource: resource, group: group, namespace: namespace})
	}
	return w
}

func (c *Cluster) ensure(key watchKey) *driftWatch {
	w := c.watches[key]
	if w == nil {
		w = &driftWatch{cluster: c, key: key, seen: map[types.NamespacedName]mark{},
			applied: map[types.NamespacedName][]*applied{}}
		c.watches[key] = w
		w.start()
	}
	return w
}

// start runs the watch. The caller holds the lock.
func (w *driftWatch) start() {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	resource := w.cluster.metadata.Resource(w.key.resource).Namespace(w.key.namespace)
	selector := w.key.group + "/name"
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return resource.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return resource.Watch(ctx, o)
		},
	}, w.cluster.metadata), &metav1.PartialObjectMetadata{}, w, cache.ReflectorOptions{
		Name: "drift of " + w.key.resource.String(), TypeDescription: w.key.resource.String(),
	})
	go func() {
		_ = rewatch.DelayWithReset(clock.RealClock{}, rewatchReset).
			Until(ctx, true, true, func(ctx context.Context) (bool, error) {
				err := reflector.ListAndWatchWithContext(ctx)
				return ctx.Err() != nil || w.broken(err), nil
			}) // ends with the context, or once there is nothing to watch
	}()
}

func (w *driftWatch) stop() {
	if w.cancel != nil {
		w.cancel()
		w.cancel = nil
	}
	w.synced = false
}

// broken takes in that the watch ended, and tells whether it is given up.
func (w *driftWatch) broken(err error) bool {
	c := w.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches[w.key] != w {
		return true
	}
	w.synced = false
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsMethodNotSupported(err):
		w.stop()
		w.refused = true
		if w.key.namespace == "" {
			w.divide()
		}
		return true
	case apierrors.IsNotFound(err): // the kind is no longer served, and its objects are gone with it
		w.stop()
		delete(c.watches, w.key)
		for _, list := range w.applied {
			for _, a := range list {
				w.tell(a)
			}
		}
		return true
	default:
		return false
	}
}

// divide hands the objects of a watch that was refused for all namespaces to watches of their own namespaces.
func (w *driftWatch) divide() {
	for name, list := range w.applied {
		if name.Namespace == "" {
			continue
		}
		delete(w.applied, name)
		part := w.cluster.watchFor(w.key.resource, name.Namespace, w.key.group)
		for _, a := range list {
			part.attach(a)
			part.judge(a)
		}
	}
}

// retry begins those watches of an owner again that were refused: the right may have been granted since.
func (c *Cluster) retry(owner Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.states[owner] {
		if a.watch.refused && a.watch.cancel == nil {
			a.watch.start()
		}
	}
}

func (w *driftWatch) attach(a *applied) {
	a.watch = w
	w.applied[a.name()] = append(w.applied[a.name()], a)
}

// detach takes an object off its watch, and stops the watch once it has none. The caller holds the lock.
func (c *Cluster) detach(a *applied) {
	w := a.watch
	list := slices.DeleteFunc(w.applied[a.name()], func(o *applied) bool { return o == a })
	if len(list) > 0 {
		w.applied[a.name()] = list
		return
	}
	delete(w.applied, a.name())
	whole := c.watches[watchKey{resource: w.key.resource, group: w.key.group}]
	for _, w := range []*driftWatch{w, whole} {
		if w != nil && len(w.applied) == 0 && c.watches[w.key] == w && !c.divided(w) {
			w.stop()
			delete(c.watches, w.key)
		}
	}
}

// divided tells whether watches of single namespaces stand in for w.
func (c *Cluster) divided(w *driftWatch) bool {
	if !w.refused || w.key.namespace != "" {
		return false
	}
	for k := range c.watches {
		if k.namespace != "" && k.resource == w.key.resource && k.group == w.key.group {
			return true
		}
	}
	return false
}

// judge compares an object with what the watch last saw. The caller holds the lock.
func (w *driftWatch) judge(a *applied) {
	now, seen := w.seen[a.name()]
	if a.busy || a.moved && !(a.looked && a.seen.differs(now)) {
		return
	}
	a.seen = now
	if a.moved {
		w.tell(a)
		return
	}
	switch {
	case !seen && a.expires:
	case !seen && w.synced && !resourceversion.Newer(a.at.version, w.newest):
		w.tell(a) // the watch is past it, and there is none
	case seen && a.at.moved(now):
		w.tell(a)
	case seen && resourceversion.Newer(now.version, a.at.version):
		a.at = now
	}
}

// tell notes that an object moved, and wakes its owner, unless another owner took it: two who fight over an
// object do so at their intervals.
func (w *driftWatch) tell(a *applied) {
	a.moved, a.looked = true, false
	if now, ok := w.seen[a.name()]; ok && now.owner != a.owner && w.cluster.states[now.owner] != nil {
		return
	}
	if left := w.cluster.held(a.owner, a.ref, a.hash); left > 0 {
		w.cluster.edges.later(a.owner, a.ref.key(), left)
		return
	}
	w.cluster.edges.wake(a.owner)
}

func (w *driftWatch) judgeAll(name types.NamespacedName) {
	for _, a := range w.applied[name] {
		w.judge(a)
	}
}

// note takes in an event. Where it returns nothing, the event is not of an object.
func (w *driftWatch) note(obj any, gone bool) error {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil
	}
	name := types.NamespacedName{Namespace: m.Namespace, Name: m.Name}
	now := w.cluster.managers.markOf(m, w.key.group)
	w.cluster.mu.Lock()
	defer w.cluster.mu.Unlock()
	w.newest = m.ResourceVersion
	if gone {
		delete(w.seen, name)
	} else {
		w.seen[name] = now
	}
	w.judgeAll(name)
	return nil
}

// Add takes in an event of the watch; so do Update and Delete.
func (w *driftWatch) Add(obj any) error { return w.note(obj, false) }

// Update takes in an event of the watch.
func (w *driftWatch) Update(obj any) error { return w.note(obj, false) }

// Delete takes in an event of the watch.
func (w *driftWatch) Delete(obj any) error { return w.note(obj, true) }

// Replace takes in a complete list: what is not in it is gone.
func (w *driftWatch) Replace(list []any, version string) error {
	seen := make(map[types.NamespacedName]mark, len(list))
	for _, obj := range list {
		if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
			seen[types.NamespacedName{Namespace: m.Namespace, Name: m.Name}] = w.cluster.managers.markOf(m, w.key.group)
		}
	}
	w.cluster.mu.Lock()
	defer w.cluster.mu.Unlock()
	w.seen, w.newest, w.synced, w.refused = seen, version, true, false
	for name := range w.applied {
		w.judgeAll(name)
	}
	return nil
}

// Bookmark takes in how far the watch has come.
func (w *driftWatch) Bookmark(version string) error {
	w.cluster.mu.Lock()
	defer w.cluster.mu.Unlock()
	w.newest = version
	return nil
}

// Resync is of no meaning here.
func (w *driftWatch) Resync() error { return nil }
