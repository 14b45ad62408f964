package apply

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// A process that starts knows nothing about live objects. Instead of a read for each, it compares their metadata, which
// the watches for drift list anyway, with what an earlier process recorded: see [Cluster.Record].

// maxFirstList is how long an apply waits for the first list of its watches before it reads its objects instead.
const maxFirstList = 30 * time.Second

// Record returns a digest of what is declared for an owner and of the metadata of its live objects, by which a later
// process recognizes that nothing has changed: see [Request.Recorded]. It is empty if metadata cannot show that.
func (c *Cluster) Record(owner Owner) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tracked[owner] {
		if t.writing || t.unknown || t.drifted || t.isPartial || t.action != Unchanged || t.watch.Refusal() != nil {
			return ""
		}
	}
	return record(c.tracked[owner])
}

// record returns the digest of objects. Like the detection of drift, it rests on the managed fields: see fingerprint.
func record(objects map[Ref]*trackedObject) string {
	if len(objects) == 0 {
		return ""
	}
	h := sha256.New()
	out := json.NewEncoder(h)
	for _, ref := range slices.SortedFunc(maps.Keys(objects), Ref.compare) {
		t := objects[ref]
		_ = out.Encode(struct { // a hash does not fail
			Ref      Ref
			Manifest []byte
			Live     lasting
		}{ref, t.hash[:], t.applied.lasting()})
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// recognize tracks the objects of an owner without a request, if nothing is tracked yet and their metadata is as an
// earlier process recorded it. Otherwise they are read.
func (r *run) recognize(ctx context.Context) {
	owner := r.req.Owner
	if r.req.Recorded == "" || !r.req.SameDeclaration || r.req.Resync || r.preview || !r.subscribe() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, maxFirstList)
	defer cancel()
	for _, w := range r.watchesOf(owner) {
		select {
		case <-w.Settled():
		case <-ctx.Done():
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known := true
	for _, t := range r.tracked[owner] {
		now, exists := t.live()
		t.applied, t.observed, t.writing = now, now, false
		known = known && exists && t.watch.Live() && !now.deleting && now.owner.Value() == owner
	}
	if known && record(r.tracked[owner]) == r.req.Recorded {
		return
	}
	for _, t := range r.tracked[owner] { // each is replaced once it was read
		t.unknown, t.drifted = true, true
	}
}

// subscribe subscribes to the metadata of all objects, and reports whether they can be recognized by it.
func (r *run) subscribe() bool {
	owner := r.req.Owner
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.tracked[owner]) > 0 || slices.ContainsFunc(r.steps, func(s *step) bool {
		return s.deferred || IsExcluded(s.manifest, owner) || isCreateOnly(s.manifest, owner) ||
			!r.req.Previous.Has(s.ref.Entry())
	}) {
		return false
	}
	for _, s := range r.steps {
		// events are compared afterwards
		r.follow(&trackedObject{owner: owner, applied: absent, observed: absent, action: Unchanged, writing: true},
			s.object)
	}
	return true
}

// watchesOf returns the watches of an owner's objects.
func (c *Cluster) watchesOf(owner Owner) []*watch {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[*watch]bool{}
	for _, t := range c.tracked[owner] {
		all[t.watch] = true
	}
	return slices.Collect(maps.Keys(all))
}

// lasting is the part of a fingerprint that is the same in each process.
type lasting struct {
	UID          string
	Generation   int64
	Version      string // of objects without a generation
	Ours, Policy uint64
}

func (f *fingerprint) lasting() lasting {
	l := lasting{UID: string(f.uid), Generation: f.generation, Ours: f.ours, Policy: f.policy}
	if f.generation == 0 {
		l.Version = f.version
	}
	return l
}
