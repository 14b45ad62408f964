package ui

import (
	"context"
	"sync"
)

// maxHeavy is how many answers that need much memory are made at a time, for all users.
const maxHeavy = 2

// turns bounds how many things are done at a time. The zero value is ready.
type turns struct {
	once  sync.Once
	slots chan struct{}
}

// take waits for a turn, and returns what ends it.
func (t *turns) take(ctx context.Context) (func(), error) {
	t.once.Do(func() { t.slots = make(chan struct{}, maxHeavy) })
	select {
	case t.slots <- struct{}{}:
		return func() { <-t.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
