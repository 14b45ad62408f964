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

// ContentionOptions configures when repeated corrections of a field count as contention with another manager, and how
// they are slowed down. Zero values select the defaults.
type ContentionOptions struct {
	Threshold int           // corrections of one field from one manager within the window; default 5
	Window    time.Duration // also the time without drift after which a contention ends; default 5 min
	MinDelay  time.Duration // between the first corrections of a contended object; doubles each time; default 10 s
	MaxDelay  time.Duration // default 5 min
}

func (o ContentionOptions) withDefaults() ContentionOptions {
	return ContentionOptions{
		Threshold: cmp.Or(o.Threshold, 5), Window: cmp.Or(o.Window, 5*time.Minute),
		MinDelay: cmp.Or(o.MinDelay, 10*time.Second), MaxDelay: cmp.Or(o.MaxDelay, 5*time.Minute),
	}
}

// Contention is an object that another manager changes again after each correction.
type Contention struct {
	Ref         Ref
	Fields      []string  // such as .spec.replicas; empty if the whole object is deleted
	Managers    []string  // names in managedFields; empty if fields are only removed, which leaves no name
	Corrections int       // number of corrections
	PausedUntil time.Time // the object is not corrected until then
}

// fieldChange is a field that another manager changed.
type fieldChange struct{ field, manager string }

// maxFieldChanges bounds how many fields of one object are recorded.
const maxFieldChanges = 8

// correctionHistory records the corrections of one object. The cluster's lock guards it.
type correctionHistory struct {
	hash        [sha256.Size]byte           // of the manifest: a new declaration starts a new history
	corrections map[fieldChange][]time.Time // within the window
	last        time.Time                   // last correction
	contention  *Contention                 // nil below the threshold
	delay       time.Duration               // until the next correction
}

// fieldsBeforeCorrection returns the managed fields of the live object before its drift is corrected. It reports false
// if the declaration changed, as the write does not correct drift then, or if the live object cannot be read.
func (r *run) fieldsBeforeCorrection(ctx context.Context, o *object, p *plan) (fields []metav1.ManagedFieldsEntry,
	drifted bool) {
	if !r.lookup(r.req.Owner, o).sameDeclaration {
		return nil, false
	}
	if p.live != nil {
		return p.live.GetManagedFields(), true
	}
	live, err := r.live(ctx, o, p.version)
	switch {
	case apierrors.IsNotFound(err):
		return nil, true
	case err != nil:
		return nil, false
	}
	return live.GetManagedFields(), true
}

// lostFields returns the fields that we own after a correction, and did not own before, with the managers that owned
// them. The manager is empty if the field was removed. Without lost fields, the values were changed under our name.
// Without fields before, the object was deleted.
func (m managers) lostFields(before, after []metav1.ManagedFieldsEntry) []fieldChange {
	if len(before) == 0 {
		return []fieldChange{{}}
	}
	others := slices.DeleteFunc(slices.Clone(before), m.isOurs)
	var found []fieldChange
	for p := range fieldsOf(after, m.isOurs).Difference(fieldsOf(before, m.isOurs)).Leaves().All() {
		if len(found) == maxFieldChanges {
			continue // the iterator of the library panics after a break
		}
		change := fieldChange{field: p.String()}
		for _, e := range others {
			if fieldsOf([]metav1.ManagedFieldsEntry{e}, nil).Has(p) {
				change.manager = e.Manager
			}
		}
		found = append(found, change)
	}
	if len(found) == 0 {
		found = append(found, fieldChange{manager: m.own})
	}
	return found
}

// fieldsOf returns the union of the fields of the selected entries; of all entries if selects is nil.
func fieldsOf(entries []metav1.ManagedFieldsEntry, selects func(metav1.ManagedFieldsEntry) bool) *fieldpath.Set {
	all := fieldpath.NewSet()
	for _, e := range entries {
		set := &fieldpath.Set{}
		if (selects == nil || selects(e)) && e.FieldsV1 != nil &&
			set.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes())) == nil {
			all = all.Union(set)
		}
	}
	return all
}

// recordCorrection records that the drift of an object was corrected.
func (c *Cluster) recordCorrection(owner Owner, object *object, changes []fieldChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, now, key := c.options.Contention, c.options.Clock.Now(), object.ref.key()
	h := c.corrections[owner][key]
	if h == nil || h.hash != object.hash {
		h = &correctionHistory{hash: object.hash, corrections: map[fieldChange][]time.Time{}}
		if c.corrections[owner] == nil {
			c.corrections[owner] = map[Ref]*correctionHistory{}
		}
		c.corrections[owner][key] = h
	}
	h.last = now
	for _, change := range changes {
		if len(h.corrections) == maxFieldChanges && h.corrections[change] == nil {
			continue
		}
		recent := slices.DeleteFunc(h.corrections[change], func(at time.Time) bool { return now.Sub(at) > o.Window })
		h.corrections[change] = append(recent, now)
		if h.contention == nil && len(h.corrections[change]) >= o.Threshold {
			h.contention = &Contention{Ref: object.ref, Corrections: len(recent)}
		}
	}
	if h.contention == nil {
		return
	}
	h.contention.Corrections++
	h.delay = min(max(2*h.delay, o.MinDelay), o.MaxDelay)
	h.contention.PausedUntil = now.Add(h.delay)
	for _, change := range changes {
		h.contention.Fields = insert(h.contention.Fields, change.field)
		h.contention.Managers = insert(h.contention.Managers, change.manager)
	}
	c.notifier.notifyAfter(owner, key, o.Window+time.Second) // the contention may have ended then
}

// insert adds a name to a sorted list, unless the list contains it or is full.
func insert(list []string, name string) []string {
	at, found := slices.BinarySearch(list, name)
	if found || name == "" || len(list) == maxFieldChanges {
		return list
	}
	return slices.Insert(list, at, name)
}

// correctionDelay returns how much longer the correction of an object is paused. The caller holds the lock.
func (c *Cluster) correctionDelay(owner Owner, ref Ref, hash [sha256.Size]byte) time.Duration {
	h := c.corrections[owner][ref.key()]
	if h == nil || h.contention == nil || h.hash != hash {
		return 0
	}
	return max(0, h.contention.PausedUntil.Sub(c.options.Clock.Now()))
}

// Contentions returns the contended objects of an owner, sorted. A contention ends when the object has not drifted for
// the whole window.
func (c *Cluster) Contentions(owner Owner) []Contention {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.options.Clock.Now()
	var contentions []Contention
	for key, h := range c.corrections[owner] {
		t := c.tracked[owner][key]
		ended := now.Sub(h.last) > c.options.Contention.Window && t != nil && !t.drifted
		switch {
		case t == nil, t.hash != h.hash, ended:
			delete(c.corrections[owner], key)
		case h.contention != nil:
			contentions = append(contentions, *h.contention)
		}
	}
	if len(c.corrections[owner]) == 0 {
		delete(c.corrections, owner)
	}
	slices.SortFunc(contentions, func(a, b Contention) int { return a.Ref.compare(b.Ref) })
	return contentions
}
