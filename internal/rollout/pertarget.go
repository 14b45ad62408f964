package rollout

import "sync"

// PerTarget stores a value for each target until the target is closed. Its zero value is ready to use, and it is safe
// for concurrent use.
type PerTarget[V any] struct {
	mu     sync.Mutex
	values map[*Target]V
}

// Of returns the value of a target. The first call for a target creates the value; end runs when the target is closed.
func (p *PerTarget[V]) Of(t *Target, create func() V, end func(V)) V {
	p.mu.Lock()
	value, ok := p.values[t]
	if !ok {
		value = create()
		if p.values == nil {
			p.values = map[*Target]V{}
		}
		p.values[t] = value
	}
	p.mu.Unlock()
	if !ok {
		t.OnClose(func() {
			end(value)
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.values, t)
		})
	}
	return value
}

// Get returns the value of a target if it exists.
func (p *PerTarget[V]) Get(t *Target) (value V, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	value, ok = p.values[t]
	return value, ok
}
