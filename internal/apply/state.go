package apply

import (
	"crypto/sha256"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// applied is what is known of an object since it was applied, or found as declared. The cluster's lock guards it.
type applied struct {
	owner    Owner
	ref      Ref
	resource schema.GroupVersionResource
	hash     [sha256.Size]byte // of what was declared
	digest   uint64            // of what stood in the cluster then
	at       mark
	watch    *driftWatch
	action   Action // what an apply of it comes to as long as it does not move
	expires  bool   // it goes by itself: its end is no move
	busy     bool   // it is being written: what the watch says is judged afterwards
	unknown  bool   // a write failed: what stands there is anyone's guess
	moved    bool
	looked   bool // what became of it was told, and is not to be put right: only what comes next counts
	seen     mark // what the watch said of it last
}

func (a *applied) name() types.NamespacedName {
	return types.NamespacedName{Namespace: a.ref.Namespace, Name: a.ref.Name}
}

// knowledge is what is known of an item before the server is asked.
type knowledge struct {
	known   bool   // it was applied, or found as declared
	same    bool   // and declared just so
	moved   bool   // and moved since
	settled bool   // it stands as declared: no need to ask
	action  Action // what to say of it then
	digest  uint64 // of what stood in the cluster when it was applied
	version string // up to which it did not move
}

func (c *Cluster) known(owner Owner, i *item) knowledge {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.states[owner][i.ref.key()]
	if a == nil || a.unknown {
		return knowledge{}
	}
	same := a.hash == i.hash
	// The end of an object will be told. That of a namespace is waited for: nothing can be created in it until then.
	ending := a.at.deleting && a.ref.groupKind() == namespaceKind
	left := c.held(owner, a.ref, i.hash) > 0 // moved, and left so for now
	return knowledge{
		known: true, same: same, moved: a.moved, settled: same && (left || !a.moved && !ending && a.watch.trusted()),
		action: a.action, digest: a.digest, version: a.at.version,
	}
}

// formerOwner returns the other owner that an item's object belongs to as far as the watches know; zero if
// there is none.
func (r *run) formerOwner(i *item) Owner {
	owner, name := r.req.Owner, types.NamespacedName{Namespace: i.ref.Namespace, Name: i.ref.Name}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, namespace := range []string{"", i.ref.Namespace} {
		if w := r.watches[watchKey{i.resource, owner.Group, namespace}]; w != nil && w.trusted() {
			if now := w.seen[name]; now.owner != owner {
				return now.owner
			}
			return Owner{}
		}
	}
	return Owner{}
}

// begin notes that an item is being written. The owner counts as one of ours from here on, as the watch may tell of the
// write before it returns.
func (c *Cluster) begin(owner Owner, i *item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.admit(owner)
	if a := c.states[owner][i.ref.key()]; a != nil {
		a.busy = true
	}
}

// fail notes that writing an item failed.
func (c *Cluster) fail(owner Owner, i *item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.states[owner][i.ref.key()]; a != nil {
		a.busy, a.unknown = false, true
	}
}

// commit notes that live stands as the item declares it, or says that it is to be left as it is: which of them is the
// action, Unchanged or Skipped. It judges what the watch said meanwhile.
func (c *Cluster) commit(owner Owner, i *item, live *unstructured.Unstructured, action Action) {
	next := &applied{
		owner: owner, ref: i.ref, resource: i.resource, hash: i.hash, action: action,
		digest: c.managers.digest(live), at: c.managers.markOf(live, owner.Group), expires: HasTTL(i.whole),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.watchFor(i.resource, i.ref.Namespace, owner.Group)
	w.attach(next)
	if old := c.states[owner][i.ref.key()]; old != nil {
		c.detach(old)
	}
	c.admit(owner)
	c.states[owner][i.ref.key()] = next
	w.judge(next)
}

// admit makes room for what is known of an owner's objects. The caller holds the lock.
func (c *Cluster) admit(owner Owner) {
	if c.states[owner] == nil {
		c.states[owner] = map[Ref]*applied{}
	}
}

// retain forgets the owner's objects that are not among the items.
func (c *Cluster) retain(owner Owner, items []*item) {
	keep := make(map[Ref]bool, len(items))
	for _, i := range items {
		keep[i.ref.key()] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, a := range c.states[owner] {
		if !keep[key] {
			c.drop(a)
		}
	}
}

// drop forgets an object. The caller holds the lock.
func (c *Cluster) drop(a *applied) {
	c.detach(a)
	delete(c.states[a.owner], a.ref.key())
	if len(c.states[a.owner]) == 0 {
		delete(c.states, a.owner)
	}
}

// dropRef forgets an object that is about to be deleted.
func (c *Cluster) dropRef(owner Owner, ref Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.states[owner][ref.key()]; a != nil {
		c.drop(a)
	}
}

// Moved tells whether a live object of the owner moved since it was applied. One that is fought for does not
// count before it is corrected again, and one that was looked at before it changes again.
func (c *Cluster) Drifted(owner Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.states[owner] {
		if a.moved && !a.looked && c.held(owner, a.ref, a.hash) == 0 {
			return true
		}
	}
	return false
}

// UnwatchedKinds lists the kinds of the owner's objects that the cluster does not let us watch, sorted. Nobody
// tells when they move: they are dry-run on every Apply.
func (c *Cluster) UnwatchedKinds(owner Owner) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var kinds []string
	for _, a := range c.states[owner] {
		if a.watch.refused {
			kinds = append(kinds, a.ref.Kind)
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// Forget drops what is known of an owner's objects, and the watches that nobody else needs.
func (c *Cluster) Forget(owner Owner) {
	c.edges.forget(owner)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.states[owner] {
		c.drop(a)
	}
	delete(c.states, owner)
	delete(c.contests, owner)
}
