package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Claims finds objects that several owners declare. All controllers of a process share it. It is safe for concurrent
// use.
//
// An object that moves from one owner to another is in both inventories for a moment. So two owners count only once
// both have completed a pass since the other claimed the object.
type Claims struct {
	Edges *reconcile.Edges // by which the other owner is enqueued

	mu      sync.Mutex
	passes  uint64 // completed passes of all owners
	owners  map[reconcile.Ref]*claimant
	holders map[claim][]*claimant
	several int // claims with more than one holder
}

// claim is an object in a cluster.
type claim struct{ cluster, id string }

// claimant is an owner with the objects of its inventory.
type claimant struct {
	ref      reconcile.Ref
	cluster  string
	since    map[string]uint64 // the pass that claimed an object first, by ID
	lastPass uint64
}

// shared is an object that another owner declares as well.
type shared struct {
	id    string
	other reconcile.Ref
	// confirmed is set if both owners have completed a pass since the other claimed the object.
	confirmed bool
}

// Report records the inventory that a pass of an owner has completed with, and reports objects that other owners
// declare as well by the condition Contended and events. yields selects the IDs of objects whose fields the owner
// leaves to others; it may be nil.
func (c *Claims) Report(obj reconcile.Object, r *Report, t *Target, inventory *meta.ResourceInventory,
	yields map[string]bool) {
	known, found := c.update(r.Owner, t.cluster, inventory, yields)
	confirmed := slices.DeleteFunc(slices.Clone(found), func(s shared) bool { return !s.confirmed })
	was := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, meta.ContendedCondition)
	switch {
	case len(confirmed) > 0:
		message := describeShared(r.Owner, confirmed)
		if was == nil || was.Message != message {
			r.Warn(meta.SeveralOwnersReason, message)
		}
		reconcile.Mark(obj, meta.ContendedCondition, metav1.ConditionTrue, meta.SeveralOwnersReason, message)
	case was == nil || len(found) > 0 || !known:
		// After a start, the other owner may not have claimed its objects yet.
	default:
		r.Note(meta.SeveralOwnersReason, "each object has one owner again")
		reconcile.Unmark(obj, meta.ContendedCondition)
	}
}

// Others returns the objects of an inventory that other owners of a kind have applied to the cluster as well, and those
// owners, sorted.
func (c *Claims) Others(owner reconcile.Ref, kind schema.GroupKind, t *Target, inventory apply.Inventory) (
	shared apply.Inventory, others []reconcile.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range inventory {
		found := false
		for _, o := range c.holders[claim{t.cluster, e.ID}] {
			if o.ref == owner || o.ref.GroupKind != kind {
				continue
			}
			if found = true; !slices.Contains(others, o.ref) {
				others = append(others, o.ref)
			}
		}
		if found {
			shared = append(shared, e)
		}
	}
	slices.SortFunc(others, func(a, b reconcile.Ref) int { return cmp.Compare(describeOwner(a), describeOwner(b)) })
	return shared, others
}

// describeShared returns which objects have which two owners. Both owners get the same text.
func describeShared(owner reconcile.Ref, found []shared) string {
	var lines []string
	for _, s := range found {
		object := s.id
		if ref, err := (apply.Entry{ID: s.id}).Ref(); err == nil {
			object = ref.String()
		}
		names := []string{describeOwner(owner), describeOwner(s.other)}
		slices.Sort(names)
		lines = append(lines, fmt.Sprintf("%s is declared by both %s and %s; each apply overwrites the other",
			object, names[0], names[1]))
	}
	slices.Sort(lines)
	if more := len(lines) - maxNamed; more > 0 {
		lines = append(lines[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n") + "\nRemove it from one of them"
}

func describeOwner(r reconcile.Ref) string {
	return fmt.Sprintf("%s '%s/%s'", r.Kind, r.Namespace, r.Name)
}

// update records a completed pass. It returns the objects that other owners claim too, and whether the owner has
// completed a pass before. Other owners whose objects are affected are enqueued.
func (c *Claims) update(owner reconcile.Ref, cluster string, inventory *meta.ResourceInventory,
	yields map[string]bool) (known bool, found []shared) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owners == nil {
		c.owners, c.holders = map[reconcile.Ref]*claimant{}, map[claim][]*claimant{}
	}
	me := c.owners[owner]
	if known = me != nil && me.cluster == cluster; !known {
		c.drop(owner)
		me = &claimant{ref: owner, cluster: cluster, since: map[string]uint64{}}
		c.owners[owner] = me
	}
	c.passes++
	previous := me.lastPass
	me.lastPass = c.passes
	c.replace(me, inventory, yields)
	if c.several == 0 {
		return known, nil
	}
	affected := map[reconcile.Ref]bool{}
	for id, since := range me.since {
		for _, o := range c.holders[claim{cluster, id}] {
			if o == me {
				continue
			}
			confirmed := o.lastPass >= since
			found = append(found, shared{id: id, other: o.ref, confirmed: confirmed})
			if since == c.passes || confirmed && previous < o.since[id] {
				affected[o.ref] = true
			}
		}
	}
	c.enqueue(affected)
	slices.SortFunc(found, func(a, b shared) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(describeOwner(a.other), describeOwner(b.other)))
	})
	return known, found
}

// replace makes the claims of an owner those of its inventory. The caller holds the lock.
func (c *Claims) replace(me *claimant, inventory *meta.ResourceInventory, yields map[string]bool) {
	var entries []meta.ResourceRef
	if inventory != nil {
		entries = inventory.Entries
	}
	kept, added := 0, []string(nil)
	for _, e := range entries {
		switch _, claimed := me.since[e.ID]; {
		case yields[e.ID]:
		case claimed:
			kept++
		default:
			added = append(added, e.ID)
		}
	}
	if kept < len(me.since) {
		named := make(map[string]bool, len(entries))
		for _, e := range entries {
			named[e.ID] = !yields[e.ID]
		}
		c.remove(me, func(id string) bool { return !named[id] })
	}
	for _, id := range added {
		if _, twice := me.since[id]; !twice {
			me.since[id] = me.lastPass
			key := claim{me.cluster, id}
			c.holders[key] = append(c.holders[key], me)
			if len(c.holders[key]) == 2 {
				c.several++
			}
		}
	}
}

// remove removes claims of an owner, and enqueues the owners that claim the same objects. The caller holds the lock.
func (c *Claims) remove(me *claimant, selects func(id string) bool) {
	affected := map[reconcile.Ref]bool{}
	for id := range me.since {
		if !selects(id) {
			continue
		}
		delete(me.since, id)
		key := claim{me.cluster, id}
		rest := slices.DeleteFunc(c.holders[key], func(o *claimant) bool { return o == me })
		if len(rest) == 0 {
			delete(c.holders, key)
			continue
		}
		c.holders[key] = rest
		if len(rest) == 1 {
			c.several--
		}
		for _, o := range rest {
			affected[o.ref] = true
		}
	}
	c.enqueue(affected)
}

// drop removes an owner. The caller holds the lock.
func (c *Claims) drop(owner reconcile.Ref) {
	if me := c.owners[owner]; me != nil {
		c.remove(me, func(string) bool { return true })
		delete(c.owners, owner)
	}
}

// Forget removes the claims of an owner that was deleted.
func (c *Claims) Forget(owner reconcile.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(owner)
}

func (c *Claims) enqueue(owners map[reconcile.Ref]bool) {
	for o := range owners {
		c.Edges.Enqueue(o)
	}
}
