package kubewatch

import (
	"context"
	"iter"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// Watch stores a value for each object that it covers. Its subscribers are notified by the store's handler. The methods
// Add, Update, Delete, Replace, Bookmark and Resync belong to its reflector, and take the lock themselves.
type Watch[O metav1.Object, V any, S comparable] struct {
	store   *Store[O, V, S]
	key     Key
	project func(O) V
	cancel  context.CancelFunc // nil while the watch does not run

	synced      bool  // a complete list was received since the watch started
	connected   bool  // the connection has not ended since then
	listed      bool  // a list was received before
	refusals    int   // in a row, since the last list
	refusal     error // why the cluster refused the watch; nil after a list
	refused     time.Time
	version     string // the newest resource version that was received
	values      map[types.NamespacedName]V
	subscribers map[types.NamespacedName][]S
	absent      map[types.NamespacedName]bool // subscribed objects without a value

	settled   chan struct{} // closed after the first list, or when there will be none
	isSettled bool
}

// Key returns the key of the watch.
func (w *Watch[O, V, S]) Key() Key { return w.key }

// Synced reports whether the watch received a complete list since it started. The list may be outdated while the watch
// reconnects.
func (w *Watch[O, V, S]) Synced() bool { return w.synced }

// Settled returns a channel that is closed after the first list, or when the cluster refused it or does not serve the
// resource. It needs no lock.
func (w *Watch[O, V, S]) Settled() <-chan struct{} { return w.settled }

func (w *Watch[O, V, S]) settle() {
	if !w.isSettled {
		w.isSettled = true
		close(w.settled)
	}
}

// Live reports whether the watch has a complete list and receives events.
func (w *Watch[O, V, S]) Live() bool { return w.synced && w.connected && w.refusal == nil }

// Refusal returns why the cluster refused the watch, or nil. It returns nil again after the first list that succeeds.
func (w *Watch[O, V, S]) Refusal() error { return w.refusal }

// RefusedAt returns when the cluster refused the watch last.
func (w *Watch[O, V, S]) RefusedAt() time.Time { return w.refused }

// ResourceVersion returns the newest resource version that the watch received; empty before the first list.
func (w *Watch[O, V, S]) ResourceVersion() string { return w.version }

// Value returns the stored value of an object. It reports false if the watch has not seen the object.
func (w *Watch[O, V, S]) Value(name types.NamespacedName) (V, bool) {
	v, ok := w.values[name]
	return v, ok
}

// Resume starts a refused watch again, as the account may have been granted the right since. It does nothing if the
// watch runs.
func (w *Watch[O, V, S]) Resume() {
	if w.cancel == nil && w.store.watches[w.key] == w {
		w.start()
	}
}

// Subscribe adds a subscriber to an object, which does not have to exist.
func (w *Watch[O, V, S]) Subscribe(name types.NamespacedName, subscriber S) {
	w.subscribers[name] = append(w.subscribers[name], subscriber)
	w.noteAbsence(name)
}

// noteAbsence records whether an object that is subscribed to has no value.
func (w *Watch[O, V, S]) noteAbsence(name types.NamespacedName) {
	if _, exists := w.values[name]; exists || len(w.subscribers[name]) == 0 {
		delete(w.absent, name)
		return
	}
	w.absent[name] = true
}

// Unsubscribe removes a subscriber. The watch goes on without subscribers until it is removed from its store.
func (w *Watch[O, V, S]) Unsubscribe(name types.NamespacedName, subscriber S) {
	rest := slices.DeleteFunc(w.subscribers[name], func(s S) bool { return s == subscriber })
	if w.subscribers[name] = rest; len(rest) == 0 {
		delete(w.subscribers, name)
		delete(w.absent, name)
	}
}

// HasSubscribers reports whether the watch has any subscriber.
func (w *Watch[O, V, S]) HasSubscribers() bool { return len(w.subscribers) > 0 }

// Subscribers returns all subscribers with the names of their objects. The watch may change during the iteration.
func (w *Watch[O, V, S]) Subscribers() iter.Seq2[types.NamespacedName, S] {
	type pair struct {
		name       types.NamespacedName
		subscriber S
	}
	var all []pair
	for name, list := range w.subscribers {
		for _, s := range list {
			all = append(all, pair{name, s})
		}
	}
	return func(yield func(types.NamespacedName, S) bool) {
		for _, p := range all {
			if !yield(p.name, p.subscriber) {
				return
			}
		}
	}
}

// Add stores a new object.
func (w *Watch[O, V, S]) Add(obj any) error { return w.event(obj, false) }

// Update stores a changed object.
func (w *Watch[O, V, S]) Update(obj any) error { return w.event(obj, false) }

// Delete removes an object.
func (w *Watch[O, V, S]) Delete(obj any) error { return w.event(obj, true) }

func (w *Watch[O, V, S]) event(obj any, deleted bool) error {
	i, ok := w.itemOf(obj)
	if !ok {
		return nil
	}
	name := nameOf(i)
	s := w.store
	defer s.unlocked()
	s.lock.Lock()
	defer s.lock.Unlock()
	w.version = i.ResourceVersion
	if deleted {
		delete(w.values, name)
	} else {
		w.values[name] = i.value
	}
	w.noteAbsence(name)
	w.changed(name)
	w.object(i, deleted)
	return nil
}

// Replace stores a complete list. Objects that it does not contain were deleted.
func (w *Watch[O, V, S]) Replace(list []any, version string) error {
	values, items := make(map[types.NamespacedName]V, len(list)), make([]*item[O, V], 0, len(list))
	for _, obj := range list {
		if i, ok := w.itemOf(obj); ok {
			values[nameOf(i)], items = i.value, append(items, i)
		}
	}
	s := w.store
	defer s.unlocked()
	s.lock.Lock()
	defer s.lock.Unlock()
	w.values, w.version = values, version
	w.synced, w.connected, w.listed, w.refusals, w.refusal = true, true, true, 0, nil
	w.settle()
	for _, i := range items {
		w.object(i, false)
	}
	for name := range w.subscribers {
		w.noteAbsence(name)
		w.changed(name)
	}
	return nil
}

// Bookmark records how far the watch has come: what it has not seen by then does not exist. It says nothing about other
// objects.
func (w *Watch[O, V, S]) Bookmark(version string) error {
	s := w.store
	defer s.unlocked()
	s.lock.Lock()
	defer s.lock.Unlock()
	w.version = version
	for name := range w.absent {
		w.changed(name)
	}
	return nil
}

// Resync does nothing.
func (w *Watch[O, V, S]) Resync() error { return nil }

func (w *Watch[O, V, S]) object(i *item[O, V], deleted bool) {
	if h := w.store.handler; h.Object != nil && (h.Whole == nil || h.Whole(w.key)) {
		guard.Run("handling a watched object", func() { h.Object(w, i.object, deleted) })
	}
}

func (w *Watch[O, V, S]) changed(name types.NamespacedName) {
	if list := w.subscribers[name]; len(list) > 0 && w.store.handler.Changed != nil {
		guard.Run("handling a watched object", func() { w.store.handler.Changed(w, list) })
	}
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
