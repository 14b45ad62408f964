package apply

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// ContentionOptions say when changing a field back again and again is taken for a fight with another manager, and how it is
// slowed down. Zero values stand for the defaults.
type ContentionOptions struct {
	Threshold int           // corrections of one field from one manager that make a fight; 5
	Window    time.Duration // within which they count, and after which a fight that rests is over; 5 min
	MinDelay  time.Duration // between corrections of the object once it is a fight, doubled each time; 10 s
	MaxDelay  time.Duration // 5 min
}

func (o ContentionOptions) withDefaults() ContentionOptions {
	return ContentionOptions{
		Threshold: cmp.Or(o.Threshold, 5), Window: cmp.Or(o.Window, 5*time.Minute),
		MinDelay: cmp.Or(o.MinDelay, 10*time.Second), MaxDelay: cmp.Or(o.MaxDelay, 5*time.Minute),
	}
}

// Fight is an object that somebody else changes back whenever it is corrected.
type Contention struct {
	Ref         Ref
	Fields      []string  // such as .spec.replicas; none if the object as a whole is deleted
	Managers    []string  // who changes them, as managedFields name them; they name nobody who only removes
	Corrections int       // how often it was corrected
	PausedUntil time.Time // it is left as it is until then
}

// rival is a field, and who changed it.
type rival struct{ field, manager string }

// maxRivals bounds how many fields of one object are followed.
const maxRivals = 8

// contest is what is known of the corrections of one object. The cluster's lock guards it.
type contest struct {
	hash        [sha256.Size]byte     // of what was declared: a new declaration starts anew
	corrections map[rival][]time.Time // within the window
	last        time.Time             // the last correction
	fight       *Contention           // once it is one
	delay       time.Duration         // until the next correction of a fight
}

// contested returns the managed fields of an object that is about to be corrected although its declaration is
// as it was: somebody changed it. It reports false for any other item. It costs a request, and a correction
// does not depend on it.
func (r *run) contested(ctx context.Context, i *item) (fields []metav1.ManagedFieldsEntry, drifted bool) {
	if !r.known(r.req.Owner, i).same {
		return nil, false
	}
	if i.live != nil {
		return i.live.GetManagedFields(), true
	}
	live, err := r.live(ctx, i)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, false
	}
	if live == nil {
		return nil, true
	}
	return live.GetManagedFields(), true
}

// lost lists the fields that are ours again, each with who had it before: nobody if it was removed, as the
// server notes no name then. Where no field was lost, values were changed in our own name. An object without
// fields was deleted.
func (m managers) lost(before, after []metav1.ManagedFieldsEntry) []rival {
	if len(before) == 0 {
		return []rival{{}}
	}
	others := slices.DeleteFunc(slices.Clone(before), m.isOurs)
	var found []rival
	for p := range fieldsOf(after, m.isOurs).Difference(fieldsOf(before, m.isOurs)).Leaves().All() {
		if len(found) == maxRivals {
			continue // to the end: the library goes on after a break, which panics
		}
		r := rival{field: p.String()}
		for _, e := range others {
			if fieldsOf([]metav1.ManagedFieldsEntry{e}, nil).Has(p) {
				r.manager = e.Manager
			}
		}
		found = append(found, r)
	}
	if len(found) == 0 {
		found = append(found, rival{manager: m.own})
	}
	return found
}

// fieldsOf joins the fields of those entries that count; all do when counts is nil.
func fieldsOf(entries []metav1.ManagedFieldsEntry, counts func(metav1.ManagedFieldsEntry) bool) *fieldpath.Set {
	all := fieldpath.NewSet()
	for _, e := range entries {
		set := &fieldpath.Set{}
		if (counts == nil || counts(e)) && e.FieldsV1 != nil &&
			set.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes())) == nil {
			all = all.Union(set)
		}
	}
	return all
}

// corrected takes in that an item was changed back. Enough of that within the window is a fight.
func (c *Cluster) corrected(owner Owner, i *item, rivals []rival) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, now, key := c.options.Contention, c.options.Clock.Now(), i.ref.key()
	t := c.contests[owner][key]
	if t == nil || t.hash != i.hash {
		t = &contest{hash: i.hash, corrections: map[rival][]time.Time{}}
		if c.contests[owner] == nil {
			c.contests[owner] = map[Ref]*contest{}
		}
		c.contests[owner][key] = t
	}
	t.last = now
	for _, r := range rivals {
		if len(t.corrections) == maxRivals && t.corrections[r] == nil {
			continue
		}
		recent := slices.DeleteFunc(t.corrections[r], func(at time.Time) bool { return now.Sub(at) > o.Window })
		t.corrections[r] = append(recent, now)
		if t.fight == nil && len(t.corrections[r]) >= o.Threshold {
			t.fight = &Contention{Ref: i.ref, Corrections: len(recent)}
		}
	}
	if t.fight == nil {
		return
	}
	t.fight.Corrections++
	t.delay = min(max(2*t.delay, o.MinDelay), o.MaxDelay)
	t.fight.PausedUntil = now.Add(t.delay)
	for _, r := range rivals {
		t.fight.Fields, t.fight.Managers = with(t.fight.Fields, r.field), with(t.fight.Managers, r.manager)
	}
	c.edges.later(owner, key, o.Window+time.Second) // to see whether it rests
}

// with adds a name to a sorted list that has not got it, up to the bound.
func with(list []string, name string) []string {
	at, found := slices.BinarySearch(list, name)
	if found || name == "" || len(list) == maxRivals {
		return list
	}
	return slices.Insert(list, at, name)
}

// held returns for how much longer an object is left to whoever fights for it. The caller holds the lock.
func (c *Cluster) held(owner Owner, ref Ref, hash [sha256.Size]byte) time.Duration {
	t := c.contests[owner][ref.key()]
	if t == nil || t.fight == nil || t.hash != hash {
		return 0
	}
	return max(0, t.fight.PausedUntil.Sub(c.options.Clock.Now()))
}

// Fights lists the objects of the owner that somebody else fights for, sorted. A fight is over once the
// object stood as it was applied for the whole window.
func (c *Cluster) Contentions(owner Owner) []Contention {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.options.Clock.Now()
	var fights []Contention
	for key, t := range c.contests[owner] {
		a := c.states[owner][key]
		rests := now.Sub(t.last) > c.options.Contention.Window && a != nil && !a.moved
		switch {
		case a == nil, a.hash != t.hash, rests:
			delete(c.contests[owner], key)
		case t.fight != nil:
			fights = append(fights, *t.fight)
		}
	}
	if len(c.contests[owner]) == 0 {
		delete(c.contests, owner)
	}
	slices.SortFunc(fights, func(a, b Contention) int { return a.Ref.compare(b.Ref) })
	return fights
}
