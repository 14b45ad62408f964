package stubapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// keptEvents is how many events of a resource a watch can go back to.
const keptEvents = 100_000

// item is a stored object. It is never changed.
type item struct {
	types.NamespacedName
	version uint64
	labels  labels.Set
	json    []byte
}

// event is a change of an object.
type event struct {
	version  uint64
	old, now *item // nil if it does not exist
}

// table holds the objects of a resource.
type table struct {
	*kind
	mu      sync.Mutex
	items   map[types.NamespacedName]*item
	sorted  []*item // by namespace and name; nil if it must be sorted again
	events  []event // the newest
	dropped int     // events before those
	changed chan struct{}
}

func newTable(k *kind) *table {
	return &table{kind: k, items: map[types.NamespacedName]*item{}, changed: make(chan struct{})}
}

// put replaces an object; now is nil to delete it. The caller holds the lock.
func (t *table) put(version uint64, old, now *item) {
	if now != nil {
		t.items[now.NamespacedName] = now
	} else {
		delete(t.items, old.NamespacedName)
		old = &item{NamespacedName: old.NamespacedName, version: version, labels: old.labels,
			json: atVersion(old.json, version)}
	}
	t.sorted = nil
	if t.events = append(t.events, event{version: version, old: old, now: now}); len(t.events) > 2*keptEvents {
		t.events = slices.Clone(t.events[keptEvents:])
		t.dropped += keptEvents
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

// atVersion returns an object with another version.
func atVersion(object []byte, version uint64) []byte {
	o := decode(object)
	metadataOf(o)["resourceVersion"] = strconv.FormatUint(version, 10)
	return encode(o)
}

// all returns the objects by namespace and name. The caller holds the lock.
func (t *table) all() []*item {
	if t.sorted == nil {
		t.sorted = slices.SortedFunc(maps.Values(t.items), byName)
	}
	return t.sorted
}

func byName(a, b *item) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// after returns the position of the first event after a version, and false if it is no longer known. The caller holds
// the lock.
func (t *table) after(version uint64) (position int, known bool) {
	n := sort.Search(len(t.events), func(i int) bool { return t.events[i].version > version })
	return t.dropped + n, n > 0 || t.dropped == 0
}

// since returns the events from a position, the position after them, and a channel that is closed with the next event.
// It returns false if the events are no longer known.
func (t *table) since(position int) (events []event, next int, changed <-chan struct{}, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if position < t.dropped {
		return nil, 0, nil, false
	}
	return t.events[position-t.dropped:], t.dropped + len(t.events), t.changed, true
}

// filter selects objects.
type filter struct {
	namespace, name string // empty for all
	labels          labels.Selector
}

func (f filter) matches(i *item) bool {
	return i != nil && (f.namespace == "" || i.Namespace == f.namespace) && (f.name == "" || i.Name == f.name) &&
		f.labels.Matches(i.labels)
}

// see returns what a watch with the filter sees of an event; nil if it sees nothing.
func (f filter) see(e event) (watch.EventType, *item) {
	was, is := f.matches(e.old), f.matches(e.now)
	switch {
	case is && was:
		return watch.Modified, e.now
	case is:
		return watch.Added, e.now
	case was && e.now == nil:
		return watch.Deleted, e.old
	case was: // it matches no longer
		return watch.Deleted, e.now
	}
	return "", nil
}

func decode(object []byte) map[string]any {
	o := map[string]any{}
	if err := json.Unmarshal(object, &o); err != nil {
		panic(fmt.Sprintf("stored object: %v", err)) // it was encoded here
	}
	return o
}

func encode(object any) []byte {
	b, err := json.Marshal(object)
	if err != nil {
		panic(fmt.Sprintf("encode: %v", err)) // it was decoded from JSON
	}
	return b
}

// metadataOf returns the metadata of an object, and creates it if needed.
func metadataOf(o map[string]any) map[string]any {
	m, ok := o["metadata"].(map[string]any)
	if !ok {
		m = map[string]any{}
		o["metadata"] = m
	}
	return m
}
