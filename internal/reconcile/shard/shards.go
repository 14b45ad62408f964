// Package shard divides objects among the replicas of a process, so that each object is reconciled by exactly one. It
// decides by the views that the replicas publish in their leases, and sends no request itself.
//
// A replica works on a key only while
//
//   - its lease is valid,
//   - the key is its own in the view that it has published, and in the one that it is about to publish, and
//   - no other replica that is alive has published a view in which the key is that of the other.
//
// A replica publishes a view before it reads those of the others, and reads them before it works on what is new to it.
// So of two replicas whose views give both the same key, at least one sees the other, and waits. It publishes a view
// which takes keys away from it only when its work on them has ended.
package shard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// Grace is how long work on an object that moves to another replica may go on before it is canceled. The next replica
// continues it.
const Grace = 5 * time.Second

// ErrMoved is the cause of the context of work that was canceled because its object moved to another replica.
var ErrMoved = errors.New("the object moved to another replica")

// Shards decides which objects this replica works on. Without a replica that joined, it works on none. It is safe for
// concurrent use.
type Shards struct {
	mu        sync.Mutex
	now       state
	work      map[*Work]struct{}
	known     map[string]string // keys of the objects that were read since they are this replica's, by object
	waiting   chan struct{}     // closed when no work that moves is left; nil if none is awaited
	observers []func(changed func(key string) bool)
}

// state is what decides about keys. It is never changed, only replaced.
type state struct {
	id    string // of this replica; empty before it joined
	view  View   // published
	next  View   // about to be published; equal to view otherwise
	peers map[string]View
}

// owns reports whether this replica may work on a key.
func (s *state) owns(key string) bool {
	if s.id == "" || s.view.Owner(key) != s.id || s.next.Owner(key) != s.id {
		return false
	}
	for id, view := range s.peers {
		if !view.Equal(s.view) && view.Owner(key) == id {
			return false
		}
	}
	return true
}

// Work is work on an object that this replica owns.
type Work struct {
	// Context of the work. It is canceled when the object moves to another replica and the work does not end by itself.
	// [IsFirst] says more about it.
	Context context.Context

	shards *Shards
	key    string
	cancel context.CancelCauseFunc
}

type firstKey struct{}

// IsFirst reports whether a context is that of the first work on an object since it is this replica's. What this
// process knows of objects may be older than what the replica before wrote, or worked with.
func IsFirst(ctx context.Context) bool {
	first, _ := ctx.Value(firstKey{}).(bool)
	return first
}

// Begin begins work on an object with a key. It is false if another replica works on the object, or may. The caller
// must call End.
func (s *Shards) Begin(ctx context.Context, key, object string) (*Work, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.now.owns(key) {
		return nil, false
	}
	_, known := s.known[object]
	if s.known == nil {
		s.known, s.work = map[string]string{}, map[*Work]struct{}{}
	}
	s.known[object] = key
	w := &Work{shards: s, key: key}
	w.Context, w.cancel = context.WithCancelCause(context.WithValue(ctx, firstKey{}, !known))
	s.work[w] = struct{}{}
	return w, true
}

// End ends the work.
func (w *Work) End() {
	w.cancel(nil)
	w.shards.mu.Lock()
	defer w.shards.mu.Unlock()
	delete(w.shards.work, w)
	w.shards.signal()
}

// Forget makes the next work on an object the first again: it could not be read, or was deleted.
func (s *Shards) Forget(object string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, object)
}

// Owns reports whether this replica may work on a key now.
func (s *Shards) Owns(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.owns(key)
}

// Replicas returns the number of replicas of the view that this one has published; 0 before.
func (s *Shards) Replicas() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.now.view)
}

// Observe adds a function that is called after each change of what this replica may work on. changed reports whether
// that is so for a key.
func (s *Shards) Observe(f func(changed func(key string) bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observers = append(s.observers, f)
}

// Join makes this process a replica with an ID. It owns nothing yet.
func (s *Shards) Join(id string) { s.replace(func(now *state) { *now = state{id: id} }) }

// Leave takes everything away from this replica, and cancels its work. The channel is closed once it has ended.
func (s *Shards) Leave() <-chan struct{} {
	s.replace(func(now *state) { *now = state{} })
	return s.drain(0)
}

// Follow sets the view that this replica has published, the one that it is about to publish (the same if none), and
// those of the others that are alive, which were read after the first was published. No work starts on what next takes
// away. The channel is closed once such work has ended. It is canceled after [Grace].
func (s *Shards) Follow(view, next View, peers map[string]View) <-chan struct{} {
	s.replace(func(now *state) { now.view, now.next, now.peers = view, next, peers })
	return s.drain(Grace)
}

// replace changes the state, and tells the observers.
func (s *Shards) replace(change func(*state)) {
	s.mu.Lock()
	before := s.now
	change(&s.now)
	after := s.now
	changed := func(key string) bool { return before.owns(key) != after.owns(key) }
	for object, key := range s.known {
		if changed(key) {
			delete(s.known, object)
		}
	}
	observers := s.observers
	s.mu.Unlock()
	if before.isSame(&after) {
		return
	}
	for _, f := range observers {
		f(changed)
	}
}

// isSame reports whether both states decide alike about all keys.
func (s *state) isSame(o *state) bool {
	if s.id != o.id || !s.view.Equal(o.view) || !s.next.Equal(o.next) {
		return false
	}
	return s.disagreeing().isSame(o.disagreeing())
}

// views are views by replica.
type views map[string]View

// disagreeing returns the views of others that differ from that of this replica.
func (s *state) disagreeing() views {
	v := views{}
	for id, view := range s.peers {
		if !view.Equal(s.view) {
			v[id] = view
		}
	}
	return v
}

func (v views) isSame(o views) bool {
	for id, view := range v {
		if other, ok := o[id]; !ok || !view.Equal(other) {
			return false
		}
	}
	return len(v) == len(o)
}

// drain returns a channel that is closed once no work on objects of others is left, and cancels such work after a time.
func (s *Shards) drain(grace time.Duration) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := make(chan struct{})
	s.waiting = done
	s.signal()
	if s.waiting != nil {
		guard.AfterFunc("moving objects to other replicas", grace, s.cancelMoved)
	}
	return done
}

// cancelMoved cancels work on objects of others.
func (s *Shards) cancelMoved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.work {
		if !s.now.keeps(w.key) {
			w.cancel(ErrMoved)
		}
	}
}

// signal closes the channel that is waited for, if no work on objects of others is left. The caller holds the lock.
func (s *Shards) signal() {
	if s.waiting == nil {
		return
	}
	for w := range s.work {
		if !s.now.keeps(w.key) {
			return
		}
	}
	close(s.waiting)
	s.waiting = nil
}

// keeps reports whether work on a key that has begun may go on.
func (s *state) keeps(key string) bool { return s.id != "" && s.next.Owner(key) == s.id }
