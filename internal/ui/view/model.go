package view

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Model is the set of all known items. It is safe for concurrent use. The items are immutable.
type Model struct {
	mu            sync.RWMutex
	items         map[string]*Item
	sorted        []*Item       // by ID; nil if outdated
	scopes        map[Scope]int // number of items
	problems      map[string]string
	loading       map[string]bool
	subscriptions map[*Subscription]struct{}
}

// NewModel returns an empty model.
func NewModel() *Model {
	return &Model{items: map[string]*Item{}, scopes: map[Scope]int{}, problems: map[string]string{},
		loading: map[string]bool{}, subscriptions: map[*Subscription]struct{}{}}
}

// Filter reports whether a user may see an item.
type Filter func(*Item) bool

// Scope is what the right to list is granted for: a kind in a namespace.
type Scope struct{ Kind, Namespace string }

// Scope returns the scope that an item belongs to.
func (i *Item) Scope() Scope { return Scope{Kind: i.Kind, Namespace: i.Namespace} }

// Scopes returns the scopes of all items.
func (m *Model) Scopes() []Scope {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Collect(maps.Keys(m.scopes))
}

// Get returns an item, or nil if it is unknown or hidden.
func (m *Model) Get(id string, may Filter) *Item {
	m.mu.RLock()
	i := m.items[id]
	m.mu.RUnlock()
	if i == nil || !may(i) {
		return nil
	}
	return i
}

// List returns the items that the filter accepts, by ID.
func (m *Model) List(may Filter) []*Item {
	all := m.all()
	visible := make([]*Item, 0, len(all))
	for _, i := range all {
		if may(i) {
			visible = append(visible, i)
		}
	}
	return visible
}

// all returns all items by ID. The caller must not change the slice.
func (m *Model) all() []*Item {
	m.mu.RLock()
	sorted := m.sorted
	m.mu.RUnlock()
	if sorted != nil {
		return sorted
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sorted == nil {
		m.sorted = make([]*Item, 0, len(m.items))
		for _, i := range m.items {
			m.sorted = append(m.sorted, i)
		}
		slices.SortFunc(m.sorted, func(a, b *Item) int { return strings.Compare(a.ID, b.ID) })
	}
	return m.sorted
}

// put stores an item and tells all subscriptions.
func (m *Model) put(i *Item) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.items[i.ID]; old != nil && old.version == i.version {
		return // a relist
	}
	if m.items[i.ID] == nil {
		m.scopes[i.Scope()]++
	}
	m.items[i.ID], m.sorted = i, nil
	m.publish(Change{ID: i.ID, Item: i})
}

// remove deletes an item and tells all subscriptions.
func (m *Model) remove(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.items[id]
	if old == nil {
		return
	}
	delete(m.items, id)
	m.sorted = nil
	if m.scopes[old.Scope()]--; m.scopes[old.Scope()] == 0 {
		delete(m.scopes, old.Scope())
	}
	m.publish(Change{ID: id, old: old})
}

// setProblem records why a kind cannot be watched; an empty text clears it.
func (m *Model) setProblem(kind, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if text == "" {
		delete(m.problems, kind)
		return
	}
	m.problems[kind] = text
	delete(m.loading, kind)
}

func (m *Model) setLoading(kind string, loading bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if loading {
		m.loading[kind] = true
		return
	}
	delete(m.loading, kind)
}

// Status returns the kinds that are not loaded yet, and why kinds cannot be watched, by kind.
func (m *Model) Status() (loading []string, problems map[string]string) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	problems = map[string]string{}
	for k, text := range m.problems {
		problems[k] = text
	}
	for k := range m.loading {
		loading = append(loading, k)
	}
	slices.Sort(loading)
	return loading, problems
}

// Change is a new state of an item; Item is nil if it was deleted.
type Change struct {
	ID   string `json:"id"`
	Item *Item  `json:"item"`

	old *Item // of a deletion: decides who may know of it
}

// VisibleTo reports whether the filter accepts the item of the change.
func (c Change) VisibleTo(may Filter) bool { return may(c.item()) }

// Scope returns the scope of the item of the change.
func (c Change) Scope() Scope { return c.item().Scope() }

// item returns the item as it is, or as it was before it was deleted.
func (c Change) item() *Item {
	if c.Item != nil {
		return c.Item
	}
	return c.old
}

// Subscription collects changes until they are taken. Changes of one item replace each other, so the memory of a
// reader that does not read is bounded by the number of items.
type Subscription struct {
	model  *Model
	mu     sync.Mutex
	queued map[string]Change
	order  []string
	ready  chan struct{}
}

// Subscribe returns a subscription to all changes from now on. Close it after use.
func (m *Model) Subscribe() *Subscription {
	s := &Subscription{model: m, queued: map[string]Change{}, ready: make(chan struct{}, 1)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.subscriptions[s] = struct{}{}
	return s
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.model.mu.Lock()
	defer s.model.mu.Unlock()
	delete(s.model.subscriptions, s)
}

// Ready is signaled when changes can be taken.
func (s *Subscription) Ready() <-chan struct{} { return s.ready }

// Take returns the collected changes in the order in which the items first changed.
func (s *Subscription) Take() []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	changes := make([]Change, 0, len(s.order))
	for _, id := range s.order {
		changes = append(changes, s.queued[id])
	}
	clear(s.queued)
	s.order = s.order[:0]
	return changes
}

// publish queues a change in all subscriptions. The caller holds the lock of the model.
func (m *Model) publish(c Change) {
	for s := range m.subscriptions {
		s.add(c)
	}
}

func (s *Subscription) add(c Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.queued[c.ID]; !ok {
		s.order = append(s.order, c.ID)
	}
	s.queued[c.ID] = c
	select {
	case s.ready <- struct{}{}:
	default: // already signaled
	}
}
