package guard

import (
	"runtime"
	"sync"
)

// Shares divides a quantity among owners: each may have at most half of what the others leave, so that one owner never
// has all of it, and several owners that take what they can leave a part for others.
type Shares struct {
	total int64

	mu      sync.Mutex
	used    int64
	byOwner map[string]int64
}

// ShareOf returns the most that one owner may have of a total: half of what the others leave.
func ShareOf[N int | int64](total, others N) N { return max(total-others, 0) / 2 }

// NewShares returns shares of a total.
func NewShares(total int64) *Shares { return &Shares{total: total, byOwner: map[string]int64{}} }

// Take gives n to an owner. It reports false, and gives nothing, if the owner has too much. What was taken must be
// given back.
func (s *Shares) Take(owner string, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	has := s.byOwner[owner]
	if has+n > ShareOf(s.total, s.used-has) {
		return false
	}
	s.used += n
	s.byOwner[owner] += n
	return true
}

// TakeWhile gives n to an owner until value is no longer reachable. It reports false, and gives nothing, if the owner
// has too much.
func TakeWhile[T any](s *Shares, owner string, n int64, value *T) bool {
	if !s.Take(owner, n) {
		return false
	}
	runtime.AddCleanup(value, func(n int64) { s.Give(owner, n) }, n)
	return true
}

// Give gives n back.
func (s *Shares) Give(owner string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	if s.byOwner[owner] -= n; s.byOwner[owner] == 0 {
		delete(s.byOwner, owner)
	}
}
