package apply

import (
	"crypto/sha256"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// trackedObject is an object that was applied, or found to be up to date. The cluster's lock guards it.
type trackedObject struct {
	owner   Owner
	ref     Ref
	hash    [sha256.Size]byte // of the manifest
	digest  uint64            // of the live object
	applied *fingerprint      // of the live object, which an event of the watch is compared with
	watch   *watch
	action  Action   // result of another apply while the object does not drift: Unchanged or Skipped
	hasTTL  bool     // its deletion is not drift
	leftOut []string // paths of unknown fields
	// isPartial is set if declared fields have their values, but others set them. Our entry of the managed fields does
	// not show when such a field changes, so any change of the object counts.
	isPartial bool

	writing bool // a write is in progress: events are compared after it
	unknown bool // a write failed: the live object may be in any state
	drifted bool
	// reported is set if the drift was reported, and is not to be corrected. Only a change after it counts as drift.
	reported bool
	observed *fingerprint // of the live object in the last event, or absent
}

func (t *trackedObject) name() types.NamespacedName {
	return types.NamespacedName{Namespace: t.ref.Namespace, Name: t.ref.Name}
}

// live returns the fingerprint of the object as the watch has seen it last; absent if it has not seen it.
func (t *trackedObject) live() (now *fingerprint, exists bool) {
	now, exists = t.watch.Value(t.name())
	if now == nil {
		now = absent
	}
	return now, exists
}

// knownState is what is known about an object without a request.
type knownState struct {
	tracked         bool
	sameDeclaration bool     // the manifest is the one that was applied last
	upToDate        bool     // the live object is as declared, or is not to be corrected now
	action          Action   // the result if it is up to date
	digest          uint64   // of the live object when it was applied
	version         string   // up to which the object did not drift
	leftOut         []string // paths of unknown fields
}

func (c *Cluster) lookup(owner Owner, o *object) knownState {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tracked[owner][o.ref.key()]
	if t == nil || t.unknown {
		return knownState{}
	}
	same := t.hash == o.hash
	// The watch reports the deletion of an object. But nothing can be created in a namespace that is being deleted, so
	// its deletion is waited for.
	deleting := t.applied.deleting && t.ref.groupKind() == namespaceKind
	paused := c.correctionDelay(owner, t.ref, o.hash) > 0
	return knownState{
		tracked: true, sameDeclaration: same,
		upToDate: same && (paused || !t.drifted && !deleting && t.watch.Live()),
		action:   t.action, digest: t.digest, version: t.applied.version, leftOut: t.leftOut,
	}
}

// previousOwner returns another owner of the live object as the watches have seen it; zero if there is none.
func (r *run) previousOwner(o *object) Owner {
	owner, name := r.req.Owner, types.NamespacedName{Namespace: o.ref.Namespace, Name: o.ref.Name}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, namespace := range []string{"", o.ref.Namespace} {
		w := r.watches.Get(watchKey(o.resource, namespace, owner.Group))
		if w == nil || !w.Live() {
			continue
		}
		if seen, _ := w.Value(name); seen != nil && seen.owner.Value() != owner {
			return seen.owner.Value()
		}
		return Owner{}
	}
	return Owner{}
}

// beginWrite records that an object is being written. The owner is added to the tracked owners before the
// write, because the watch may report the write before it returns.
func (c *Cluster) beginWrite(owner Owner, o *object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addOwner(owner)
	if t := c.tracked[owner][o.ref.key()]; t != nil {
		t.writing = true
	}
}

// failWrite records that a write failed.
func (c *Cluster) failWrite(owner Owner, o *object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.tracked[owner][o.ref.key()]; t != nil {
		t.writing, t.unknown = false, true
	}
}

// commit tracks a live object that is as declared, or must be skipped. The action is Unchanged or Skipped. It compares
// the object with the events that the watch received meanwhile.
func (c *Cluster) commit(owner Owner, o *object, live *unstructured.Unstructured, action Action) {
	c.track(&trackedObject{owner: owner, action: action}, o, live)
}

// commitPartial is commit for an object that has all declared values, though others set some of the fields.
func (c *Cluster) commitPartial(owner Owner, o *object, live *unstructured.Unstructured) {
	c.track(&trackedObject{owner: owner, action: Unchanged, isPartial: true}, o, live)
}

func (c *Cluster) track(next *trackedObject, o *object, live *unstructured.Unstructured) {
	next.digest, next.applied = c.managers.digest(live), c.managers.fingerprintOf(live, next.owner.Group)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.follow(next, o)
	c.compare(next)
}

// follow subscribes to the metadata of an object, and replaces what was tracked of it. The caller holds the lock.
func (c *Cluster) follow(next *trackedObject, o *object) {
	owner := next.owner
	next.ref, next.hash = o.ref, o.hash
	next.hasTTL, next.leftOut = HasTTL(o.manifest), o.unknown
	c.attach(next, c.watchFor(o.resource, o.ref.Namespace, owner.Group))
	if old := c.tracked[owner][o.ref.key()]; old != nil {
		c.detach(old) // after the new one, so that the watch stays
	}
	c.addOwner(owner)
	c.tracked[owner][o.ref.key()] = next
}

// trackDrifted tracks an object that is not as it was applied. It does nothing if the object is tracked already.
func (c *Cluster) trackDrifted(owner Owner, o *object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tracked[owner][o.ref.key()] != nil {
		return
	}
	t := &trackedObject{owner: owner, ref: o.ref, hash: o.hash, applied: absent, action: Unchanged, drifted: true,
		reported: true}
	c.attach(t, c.watchFor(o.resource, o.ref.Namespace, owner.Group))
	t.observed, _ = t.live()
	c.addOwner(owner)
	c.tracked[owner][o.ref.key()] = t
}

// markReported records that the drift of an owner's objects is reported now.
func (c *Cluster) markReported(owner Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tracked[owner] {
		t.reported = true
		t.observed, _ = t.live()
	}
}

// addOwner adds an owner to the tracked owners. The caller holds the lock.
func (c *Cluster) addOwner(owner Owner) {
	if c.tracked[owner] == nil {
		c.tracked[owner] = map[Ref]*trackedObject{}
	}
}

// retain stops tracking the owner's objects that are not in the set.
func (c *Cluster) retain(owner Owner, set []*step) {
	keep := make(map[Ref]bool, len(set))
	for _, s := range set {
		keep[s.ref.key()] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.refused, owner)
	for key, t := range c.tracked[owner] {
		if !keep[key] {
			c.remove(t)
		}
	}
}

// remove stops tracking an object. The caller holds the lock.
func (c *Cluster) remove(t *trackedObject) {
	c.detach(t)
	delete(c.tracked[t.owner], t.ref.key())
	if len(c.tracked[t.owner]) == 0 {
		delete(c.tracked, t.owner)
	}
}

// untrack stops tracking an object that is about to be deleted.
func (c *Cluster) untrack(owner Owner, ref Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.tracked[owner][ref.key()]; t != nil {
		c.remove(t)
	}
}

// Drifted reports whether a live object of the owner has drifted since it was applied. Drift does not count while its
// correction is paused because of contention, or after [Cluster.DetectDrift] returned it.
func (c *Cluster) Drifted(owner Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tracked[owner] {
		if t.drifted && !t.reported && c.correctionDelay(owner, t.ref, t.hash) == 0 {
			return true
		}
	}
	return false
}

// UnwatchedKinds returns the sorted kinds of the owner's objects that the account may not watch. Their drift is only
// found by the dry-runs of an Apply.
func (c *Cluster) UnwatchedKinds(owner Owner) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var kinds []string
	for _, t := range c.tracked[owner] {
		if t.watch.Refusal() != nil {
			kinds = append(kinds, t.ref.Kind)
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// Forget stops tracking the objects of an owner, and stops the watches that no other owner uses.
func (c *Cluster) Forget(owner Owner) {
	c.notifier.forget(owner)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tracked[owner] {
		c.remove(t)
	}
	delete(c.tracked, owner)
	delete(c.corrections, owner)
	delete(c.refused, owner)
}
