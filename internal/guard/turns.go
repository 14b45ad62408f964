package guard

import (
	"context"
	"slices"
	"sync"
)

// Turns lets owners do at the same time what only a few may do. An owner has at most half of the places that the others
// leave, rounded up: from four places on, one owner that keeps its places leaves some for two others.
type Turns struct {
	total int

	mu      sync.Mutex
	taken   int
	byOwner map[string]int
	waiting []*turn // in the order of arrival
}

type turn struct {
	owner   string
	granted chan struct{} // closed when it has a place
}

// NewTurns returns turns with a number of places, at least one.
func NewTurns(total int) *Turns { return &Turns{total: max(1, total), byOwner: map[string]int{}} }

// Take waits for a place of an owner, which done gives back. The error is the cause of the end of ctx.
func (t *Turns) Take(ctx context.Context, owner string) (done func(), err error) {
	w := &turn{owner: owner, granted: make(chan struct{})}
	t.mu.Lock()
	t.waiting = append(t.waiting, w)
	t.grant()
	t.mu.Unlock()
	select {
	case <-w.granted:
		return func() { t.give(owner) }, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, w); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else {
		t.add(owner, -1) // it was granted in the meantime
	}
	t.grant()
	return nil, context.Cause(ctx)
}

func (t *Turns) give(owner string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(owner, -1)
	t.grant()
}

// add adds n to the places of an owner. The caller holds the lock.
func (t *Turns) add(owner string, n int) {
	t.taken += n
	if t.byOwner[owner] += n; t.byOwner[owner] == 0 {
		delete(t.byOwner, owner)
	}
}

// grant gives places to those that wait and may have one. The caller holds the lock.
func (t *Turns) grant() {
	t.waiting = slices.DeleteFunc(t.waiting, func(w *turn) bool {
		has := t.byOwner[w.owner]
		if has >= ShareOf(t.total+1, t.taken-has) { // rounded up
			return false
		}
		t.add(w.owner, 1)
		close(w.granted)
		return true
	})
}
