package ui

import (
	"cmp"
	"context"
	"net/http"
	"sync"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// Bounds of what is done at a time.
const (
	maxHeavy        = 2 // answers that need much memory, for all users
	maxUserHeavy    = 4 // of one user, waiting or in work
	maxLarge        = 8 // answers about single objects, which tenants can make large
	maxRequests     = 500
	maxUserRequests = 50
)

// turns bounds how many things are done at a time. The zero value is for answers that need much memory.
type turns struct {
	size, userSize int // at a time; of one user, waiting or in work
	once           sync.Once
	slots          chan struct{}
	users          guard.Counter
}

// take waits for a turn of a user, and returns what ends it.
func (t *turns) take(ctx context.Context, user string) (func(), error) {
	t.once.Do(func() { t.slots = make(chan struct{}, cmp.Or(t.size, maxHeavy)) })
	if !t.users.Open(user, maxRequests, cmp.Or(t.userSize, maxUserHeavy)) {
		return nil, errTooMany
	}
	select {
	case t.slots <- struct{}{}:
		return func() { <-t.slots; t.users.Close(user) }, nil
	case <-ctx.Done():
		t.users.Close(user)
		return nil, ctx.Err()
	}
}

// bound returns a handler that waits for a turn of its user.
func (t *turns) bound(h handler) handler {
	return func(ctx context.Context, u *User, r *http.Request) (any, error) {
		done, err := t.take(ctx, u.Name)
		if err != nil {
			return nil, err
		}
		defer done()
		return h(ctx, u, r)
	}
}

var errTooMany = NewError(http.StatusTooManyRequests,
	"too many requests at a time. Wait for the others, then try again.")
