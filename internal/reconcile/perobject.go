package reconcile

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// PerObject is what a process stores about the objects of a kind between their passes. Every pass takes its lock, so
// nothing else is done under it. Its zero value is ready to use.
type PerObject[S any] struct {
	mu    sync.Mutex
	byUID map[types.UID]*S
}

// Of returns the state of an object, and stores the one that create returns if there is none.
func (s *PerObject[S]) Of(uid types.UID, create func() *S) *S {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byUID[uid] == nil {
		s.set(uid, create())
	}
	return s.byUID[uid]
}

// Get returns the state of an object; nil if there is none.
func (s *PerObject[S]) Get(uid types.UID) *S {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byUID[uid]
}

// Set stores the state of an object.
func (s *PerObject[S]) Set(uid types.UID, state *S) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(uid, state)
}

func (s *PerObject[S]) set(uid types.UID, state *S) {
	if s.byUID == nil {
		s.byUID = map[types.UID]*S{}
	}
	s.byUID[uid] = state
}

// Remove removes the state of an object and returns it; nil if there was none.
func (s *PerObject[S]) Remove(uid types.UID) *S {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.byUID[uid]
	delete(s.byUID, uid)
	return state
}
