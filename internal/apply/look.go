package apply

import (
	"context"
)

// Look is Diff for an owner whose live objects are reported, not put right: what it finds counts as seen, so
// that Moved and OnDrift tell of what changes from here on. It is for objects that were applied as they are
// declared now, by this process or one before it.
func (c *Cluster) DetectDrift(ctx context.Context, req Request) ([]Change, error) {
	c.overlook(req.Owner) // before the dry-runs: what changes meanwhile is told
	return c.preview(ctx, req, true)
}

// overlook notes that what moved of an owner's objects is being looked at.
func (c *Cluster) overlook(owner Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.states[owner] {
		a.looked, a.seen = true, a.watch.seen[a.name()]
	}
}

// follow has an object watched that is not as it was applied. Nothing is done where it is known already.
func (c *Cluster) follow(owner Owner, i *item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.states[owner][i.ref.key()] != nil {
		return
	}
	w := c.watchFor(i.resource, i.ref.Namespace, owner.Group)
	a := &applied{owner: owner, ref: i.ref, resource: i.resource, hash: i.hash, action: Unchanged, moved: true,
		looked: true}
	w.attach(a)
	a.seen = w.seen[a.name()]
	c.admit(owner)
	c.states[owner][i.ref.key()] = a
}
