package testenv

import (
	"context"
	"sync/atomic"
)

// CanceledAfter returns a context whose Err returns nil n times, and then that the context is canceled. Done is that of
// ctx: only code that calls Err while it works ends.
func CanceledAfter(ctx context.Context, n int64) context.Context {
	c := &canceledAfter{Context: ctx}
	c.left.Store(n)
	return c
}

type canceledAfter struct {
	context.Context
	left atomic.Int64
}

// Err implements [context.Context].
func (c *canceledAfter) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return c.Context.Err()
}
