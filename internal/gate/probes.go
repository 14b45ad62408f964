package gate

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// maxProbes is the maximum number of checks of one namespace that run at the same time. The checks of all namespaces
// are at most twice as many: each has a share of them.
const maxProbes = 32

// probes runs checks in the background. A check runs once at a time, also if its gate changes, and has no goroutine
// before it is its turn. The zero value is ready to use. It is safe for concurrent use.
type probes struct {
	mu      sync.Mutex
	shares  *guard.Shares // of namespaces
	running map[probeKey]bool
	waiting []*waitingProbe // in the order of arrival
}

// probeKey identifies a check of a gate.
type probeKey struct {
	gate  types.UID
	check string
}

type waitingProbe struct {
	key       probeKey
	namespace string
	probe     func()
	done      func()
}

// isRunning reports whether a check runs.
func (p *probes) isRunning(key probeKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running[key]
}

// run calls probe in the background when it is the turn of the namespace, and done after it, when the check may run
// again. It replaces what waits for the same check. It does nothing if the check runs.
func (p *probes) run(key probeKey, namespace string, probe, done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shares == nil {
		p.shares, p.running = guard.NewShares(2*maxProbes), map[probeKey]bool{}
	}
	if p.running[key] {
		return
	}
	w := &waitingProbe{key: key, namespace: namespace, probe: probe, done: done}
	if i := slices.IndexFunc(p.waiting, func(o *waitingProbe) bool { return o.key == key }); i >= 0 {
		p.waiting[i] = w
	} else {
		p.waiting = append(p.waiting, w)
	}
	p.startLocked()
}

// forget removes the checks of a gate that wait.
func (p *probes) forget(gate types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = slices.DeleteFunc(p.waiting, func(w *waitingProbe) bool { return w.key.gate == gate })
}

// startLocked starts the checks that wait for namespaces with free shares.
func (p *probes) startLocked() {
	full := map[string]bool{}
	p.waiting = slices.DeleteFunc(p.waiting, func(w *waitingProbe) bool {
		if full[w.namespace] || !p.shares.Take(w.namespace, 1) {
			full[w.namespace] = true
			return false
		}
		p.running[w.key] = true
		guard.Go("checking a gate", func() {
			defer w.done()
			defer p.end(w)
			w.probe()
		})
		return true
	})
}

// end records that a check has ended.
func (p *probes) end(w *waitingProbe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, w.key)
	p.shares.Give(w.namespace, 1)
	p.startLocked()
}
