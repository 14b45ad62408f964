package guard

import (
	"context"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
)

// Group is an [errgroup.Group] with guarded goroutines: a panic is an error of the group.
type Group struct {
	ctx   context.Context // for its logger
	work  string
	group *errgroup.Group
}

// NewGroup returns a group for work, which is said as in [Do].
func NewGroup(work string) *Group { return &Group{context.Background(), work, new(errgroup.Group)} }

// GroupWithContext returns a group, and a context that ends at the first error or when Wait returns.
func GroupWithContext(ctx context.Context, work string) (*Group, context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	return &Group{ctx, work, group}, ctx
}

// SetLimit bounds how many goroutines run at the same time.
func (g *Group) SetLimit(n int) { g.group.SetLimit(n) }

// Go calls f in a new goroutine. It waits while the limit is reached.
func (g *Group) Go(f func() error) {
	g.group.Go(func() error { return DoContext(g.ctx, g.work, f) })
}

// Wait waits until all goroutines ended, and returns the first error.
func (g *Group) Wait() error { return g.group.Wait() }

// Flight is a [singleflight.Group]: concurrent calls with the same key share one call and its result. A panic is the
// error of all of them. The zero value is ready to use.
type Flight[T any] struct{ group singleflight.Group }

// Do calls f, or waits for the call with the same key that is running.
func (f *Flight[T]) Do(work, key string, call func() (T, error)) (T, error) {
	v, err, _ := f.group.Do(key, guarded(work, call))
	result, _ := v.(T)
	return result, err
}

// DoContext is [Flight.Do], but ends when ctx does. The call goes on then, for others that wait.
func (f *Flight[T]) DoContext(ctx context.Context, work, key string, call func() (T, error)) (T, error) {
	select {
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	case done := <-f.group.DoChan(key, guarded(work, call)):
		result, _ := done.Val.(T)
		return result, done.Err
	}
}

func guarded[T any](work string, call func() (T, error)) func() (any, error) {
	return func() (result any, err error) {
		defer Recover(work, &err)
		inject(work)
		return call()
	}
}
