package apply

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/internal/cluster/kubewatch"
	"github.com/sluice-gitops/sluice/internal/cluster/resourceversion"
)

// The watches cover the metadata of all objects of a resource that carry an owner label of a group. They store a
// fingerprint of each object.
type (
	watchStore = kubewatch.Store[*metav1.PartialObjectMetadata, *fingerprint, *trackedObject]
	watch      = kubewatch.Watch[*metav1.PartialObjectMetadata, *fingerprint, *trackedObject]
)

func (c *Cluster) newWatches(client kubewatch.Client[*metav1.PartialObjectMetadata]) *watchStore {
	return kubewatch.New(&c.mu, client,
		kubewatch.Handler[*metav1.PartialObjectMetadata, *fingerprint, *trackedObject]{
			Changed: func(_ *watch, objects []*trackedObject) {
				for _, t := range objects {
					c.compare(t)
				}
			},
			Refused: c.splitWatch,
			Unserved: func(w *watch) { // the objects were deleted with the kind
				for _, t := range w.Subscribers() {
					c.reportDrift(t)
				}
			},
		})
}

// watchKey returns the key of a watch of one namespace, or of all namespaces if the namespace is empty.
func watchKey(resource schema.GroupVersionResource, namespace, group string) kubewatch.Key {
	return kubewatch.Key{Resource: resource, Namespace: namespace, LabelSelector: Owner{Group: group}.nameLabel()}
}

// watchFor returns the watch that covers a resource in a namespace: the one for all namespaces or, if the
// cluster refused that, the one for the namespace. The caller holds the lock.
func (c *Cluster) watchFor(resource schema.GroupVersionResource, namespace, group string) *watch {
	project := func(o *metav1.PartialObjectMetadata) *fingerprint { return c.managers.fingerprintOf(o, group) }
	w := c.watches.Watch(watchKey(resource, "", group), project)
	if w.Refusal() != nil && namespace != "" {
		w = c.watches.Watch(watchKey(resource, namespace, group), project)
	}
	return w
}

// splitWatch moves the objects of a refused watch of all namespaces to watches of their namespaces. The
// caller holds the lock.
func (c *Cluster) splitWatch(w *watch) {
	if w.Key().Namespace != "" {
		return
	}
	for name, t := range w.Subscribers() {
		if name.Namespace == "" {
			continue
		}
		c.move(t, c.watchFor(w.Key().Resource, name.Namespace, t.owner.Group))
	}
}

// move moves an object to another watch. The caller holds the lock.
func (c *Cluster) move(t *trackedObject, to *watch) {
	t.watch.Unsubscribe(t.name(), t)
	c.attach(t, to)
	c.compare(t)
}

// wholeAgain is how long watches of single namespaces replace a refused watch of all namespaces before it is tried
// again.
const wholeAgain = time.Hour

// resumeWatches starts the refused watches of an owner again, as the right may have been granted since. Objects go back
// to a watch of all namespaces that is not refused any more.
func (c *Cluster) resumeWatches(owner Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tracked[owner] {
		if t.watch.Refusal() != nil {
			t.watch.Resume()
		}
		one := t.watch
		if one.Key().Namespace == "" {
			continue
		}
		all := c.watches.Get(watchKey(t.watch.Key().Resource, "", owner.Group))
		switch {
		case all == nil:
		case all.Live():
			c.move(t, all)
			if !one.HasSubscribers() {
				c.watches.Remove(one)
			}
		case all.Refusal() != nil && c.options.Clock.Since(all.RefusedAt()) >= wholeAgain:
			all.Resume()
		}
	}
}

func (c *Cluster) attach(t *trackedObject, w *watch) {
	t.watch = w
	w.Subscribe(t.name(), t)
}

// detach removes an object from its watch, and stops the watches without objects. The caller holds the lock.
func (c *Cluster) detach(t *trackedObject) {
	t.watch.Unsubscribe(t.name(), t)
	all := c.watches.Get(watchKey(t.watch.Key().Resource, "", t.owner.Group))
	for _, w := range []*watch{t.watch, all} {
		if w != nil && !w.HasSubscribers() && !c.isSplit(w) {
			c.watches.Remove(w)
		}
	}
}

// isSplit reports whether watches of single namespaces replace a refused watch of all namespaces. The refused watch is
// kept, so that the next object of the resource does not try it again.
func (c *Cluster) isSplit(w *watch) bool {
	key := w.Key()
	if w.Refusal() == nil || key.Namespace != "" {
		return false
	}
	for k := range c.watches.All() {
		if k.Namespace != "" && k.Resource == key.Resource && k.LabelSelector == key.LabelSelector {
			return true
		}
	}
	return false
}

// compare compares an object with the last event of its watch. The caller holds the lock.
func (c *Cluster) compare(t *trackedObject) {
	now, exists := t.live()
	if t.writing || t.drifted && !(t.reported && t.observed.differs(now)) {
		return
	}
	t.observed = now
	if t.drifted {
		c.reportDrift(t)
		return
	}
	switch {
	case !exists && t.hasTTL:
	case !exists && t.watch.Live() && !resourceversion.Newer(t.applied.version, t.watch.ResourceVersion()):
		c.reportDrift(t) // deleted: the watch has passed the version that was applied
	case exists && (t.applied.driftedTo(now) || t.isPartial && t.applied.changedTo(now)):
		c.reportDrift(t)
	case exists && (now.version == t.applied.version || resourceversion.Newer(now.version, t.applied.version)):
		t.applied = now // also if it is equal, so that it is kept once
	}
}

// reportDrift records that an object drifted, and notifies its owner. The owner is not notified if another owner took
// the object over: two owners that declare the same object apply it at their intervals. If the correction is
// paused, the owner is notified when the pause ends.
func (c *Cluster) reportDrift(t *trackedObject) {
	t.drifted, t.reported = true, false
	if now, ok := t.live(); ok && now.owner.Value() != t.owner && c.tracked[now.owner.Value()] != nil {
		return
	}
	if delay := c.correctionDelay(t.owner, t.ref, t.hash); delay > 0 {
		c.notifier.notifyAfter(t.owner, t.ref.key(), delay)
		return
	}
	c.notifier.notify(t.owner)
}
