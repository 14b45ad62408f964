package apply

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// fingerprintAnnotation carries the fingerprint in the watch's own memory, in place of the managed fields.
const fingerprintAnnotation = "sluice/fingerprint"

// watchKey says what a watch covers: the objects of a resource that carry an owner label of a group.
type watchKey struct {
	resource schema.GroupVersionResource
	group    string
}

// driftWatch is a watch of metadata, shared by all owners.
type driftWatch struct {
	informer cache.SharedIndexInformer
	cancel   context.CancelFunc
	refused  bool // the cluster does not let us watch this resource
}

func (w *driftWatch) stop() { w.cancel() }

// applied is what we know of an object since we applied it, or found it as declared.
type applied struct {
	watch       watchKey
	ref         Ref
	hash        string // of what was declared
	uid         types.UID
	fingerprint string
	version     uint64    // the resource version at that time
	seen        *sighting // the newest that the watch said
	busy        bool      // we are applying it right now: what the watch says is judged afterwards
	moved       bool
}

// sighting is what the watch says of an object.
type sighting struct {
	version     uint64
	uid         types.UID
	fingerprint string
	gone        bool
}

// judge tells whether the object moved since it was applied.
func (a *applied) judge() bool {
	s := a.seen
	return s != nil && s.version > a.version && (s.gone || s.uid != a.uid || s.fingerprint != a.fingerprint)
}

// Moved tells whether a live object of the owner moved since it was applied.
func (c *Cluster) Moved(owner Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.states[owner] {
		if a.moved {
			return true
		}
	}
	return false
}

// Unwatched lists the kinds of the owner's objects that the cluster does not let us watch. They are compared on every apply.
func (c *Cluster) Unwatched(owner Owner) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var kinds []string
	for _, a := range c.states[owner] {
		if w := c.watches[a.watch]; w != nil && w.refused && !slices.Contains(kinds, a.ref.Kind) {
			kinds = append(kinds, a.ref.Kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// Forget drops what is known of an owner's objects, and the watches that nobody else needs.
func (c *Cluster) Forget(owner Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.states, owner)
	c.tidy()
}

// tidy stops watches that no owner needs. The caller holds the lock.
func (c *Cluster) tidy() {
	used := map[watchKey]bool{}
	for _, objects := range c.states {
		for _, a := range objects {
			used[a.watch] = true
		}
	}
	for k, w := range c.watches {
		if !used[k] {
			w.stop()
			delete(c.watches, k)
		}
	}
}

// settled tells whether an object stands as declared, by what is known without asking.
func (c *Cluster) settled(owner Owner, i *item) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.states[owner][i.ref.key()]
	if a == nil || a.hash != i.hash || a.moved || a.ref.Version != i.ref.Version {
		return false
	}
	w := c.watches[a.watch]
	return w != nil && !w.refused
}

// begin notes that an object is about to be compared or applied, and makes sure that it is watched.
func (c *Cluster) begin(owner Owner, i *item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	objects := c.states[owner]
	if objects == nil {
		objects = map[Ref]*applied{}
		c.states[owner] = objects
	}
	a := objects[i.ref.key()]
	if a == nil {
		a = &applied{}
		objects[i.ref.key()] = a
	}
	a.ref, a.watch, a.busy, a.hash = i.ref, watchKey{i.resource, owner.Group}, true, ""
	c.watch(a.watch)
}

// end notes what stands in the cluster now; a nil object says that it is not known.
func (c *Cluster) end(owner Owner, i *item, live *unstructured.Unstructured) {
	c.mu.Lock()
	a := c.states[owner][i.ref.key()]
	if a == nil {
		c.mu.Unlock()
		return
	}
	a.busy, a.moved = false, false
	if live != nil {
		a.hash, a.uid, a.version = i.hash, live.GetUID(), number(live.GetResourceVersion())
		a.fingerprint = fingerprint(live.GetManagedFields(), c.options.FieldManager)
		a.moved = a.judge()
	}
	moved := a.moved
	c.mu.Unlock()
	if moved {
		c.options.OnDrift(owner)
	}
}

// retain forgets the owner's objects that are not in the inventory any more.
func (c *Cluster) retain(owner Owner, keep Inventory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := keep.ids()
	for key := range c.states[owner] {
		if !ids[key.Entry().ID] {
			delete(c.states[owner], key)
		}
	}
	c.tidy()
}

// watch starts a watch unless it runs. The caller holds the lock.
func (c *Cluster) watch(key watchKey) {
	if c.watches[key] != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	informer := metadatainformer.NewFilteredMetadataInformer(c.metadata, key.resource, metav1.NamespaceAll, 0, cache.Indexers{},
		func(o *metav1.ListOptions) { o.LabelSelector = key.group + "/name" }).Informer()
	w := &driftWatch{informer: informer, cancel: cancel}
	// Both setters fail only on an informer that has started.
	_ = informer.SetTransform(func(obj any) (any, error) { return c.slim(key, obj), nil })
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { c.watchFailed(key, w, err) })
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.observe(key, obj, false) },
		UpdateFunc: func(_, obj any) { c.observe(key, obj, false) },
		DeleteFunc: func(obj any) {
			if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = t.Obj
			}
			c.observe(key, obj, true)
		},
	})
	c.watches[key] = w
	go informer.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			c.checkAbsent(key, w)
		}
	}()
}

// slim keeps of an object's metadata what a move is judged by.
func (c *Cluster) slim(key watchKey, obj any) any {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok || m.Annotations[fingerprintAnnotation] != "" && len(m.ManagedFields) == 0 {
		return obj
	}
	out := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Labels: map[string]string{},
		Annotations: map[string]string{fingerprintAnnotation: fingerprint(m.ManagedFields, c.options.FieldManager)},
	}}
	for _, l := range []string{"/name", "/namespace"} {
		out.Labels[key.group+l] = m.Labels[key.group+l]
	}
	for k, v := range m.Annotations {
		if strings.HasPrefix(k, key.group+"/") {
			out.Annotations[k] = v
		}
	}
	return out
}

// observe judges what the watch says.
func (c *Cluster) observe(key watchKey, obj any, gone bool) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	s := &sighting{version: number(m.ResourceVersion), uid: m.UID, fingerprint: m.Annotations[fingerprintAnnotation], gone: gone}
	owner := Owner{Group: key.group, Namespace: m.Labels[key.group+"/namespace"], Name: m.Labels[key.group+"/name"]}
	c.mu.Lock()
	for _, a := range c.states[owner] {
		if a.watch != key || a.ref.Namespace != m.Namespace || a.ref.Name != m.Name {
			continue
		}
		if gone && a.version >= s.version {
			s.version = a.version + 1 // the deletion itself may come without a version of its own
		}
		a.seen = s
		if a.busy || a.moved || !a.judge() {
			continue
		}
		a.moved = true
		c.mu.Unlock()
		c.options.OnDrift(owner)
		return
	}
	c.mu.Unlock()
}

// checkAbsent finds objects that went before the watch began.
func (c *Cluster) checkAbsent(key watchKey, w *driftWatch) {
	listed := number(w.informer.LastSyncResourceVersion())
	var owners []Owner
	c.mu.Lock()
	for owner, objects := range c.states {
		for _, a := range objects {
			if a.watch != key || a.busy || a.hash == "" || a.version > listed {
				continue
			}
			id := a.ref.Name
			if a.ref.Namespace != "" {
				id = a.ref.Namespace + "/" + id
			}
			if _, ok, err := w.informer.GetStore().GetByKey(id); err == nil && !ok {
				a.moved = true
				owners = append(owners, owner)
			}
		}
	}
	c.mu.Unlock()
	for _, o := range owners {
		c.options.OnDrift(o)
	}
}

// watchFailed gives up on a resource that may not be watched, and on one that is no longer served.
func (c *Cluster) watchFailed(key watchKey, w *driftWatch, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsMethodNotSupported(err):
		w.refused = true
		w.stop()
	case apierrors.IsNotFound(err):
		w.stop()
		if c.watches[key] == w {
			delete(c.watches, key) // begun again with the next apply of the kind
		}
	}
}

// number reads a resource version; they are ordered numbers (KEP-5504).
func number(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return math.MaxUint64 // not ordered: judged by the fingerprint alone
	}
	return n
}

// settleTime is how long a watch on a new resource may take before the cluster is said not to serve it.
const settleTime = 30 * time.Second
