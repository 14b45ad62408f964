package resourceversion

import "context"

type currentKey struct{}

// WithCurrent returns a context for work that must not read objects of our kinds in an older version than the API
// server has.
func WithCurrent(ctx context.Context) context.Context {
	return context.WithValue(ctx, currentKey{}, true)
}

// NeedsCurrent reports whether work with a context must not read older versions. See [WithCurrent].
func NeedsCurrent(ctx context.Context) bool { return ctx.Value(currentKey{}) != nil }
