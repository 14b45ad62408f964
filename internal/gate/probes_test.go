package gate

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// hung are checks that do not end before the test does.
type hung struct {
	probes
	stop chan struct{}
}

func newHung(t *testing.T) *hung {
	t.Helper()
	h := &hung{stop: make(chan struct{})}
	t.Cleanup(func() { close(h.stop) })
	return h
}

func (h *hung) check(namespace, gate, check string) {
	h.run(probeKey{types.UID(gate), check}, namespace, func() { <-h.stop }, func() {})
}

// TestHungChecksOfANamespaceDelayNoOther starts more checks of a namespace than may run.
func TestHungChecksOfANamespaceDelayNoOther(t *testing.T) {
	h := newHung(t)
	for i := range 40 {
		for c := range 16 {
			h.check("a", fmt.Sprint("gate-", i), fmt.Sprint(c))
		}
	}
	if n := len(h.running); n != maxProbes {
		t.Errorf("%d checks of one namespace run, want %d", n, maxProbes)
	}
	for _, namespace := range []string{"b", "c", "d"} {
		h.check(namespace, "gate-"+namespace, "only")
		if !h.isRunning(probeKey{types.UID("gate-" + namespace), "only"}) {
			t.Errorf("the check of namespace %s does not run", namespace)
		}
	}
}

// TestChecksOfAChangingGateAreBounded changes a gate often while its checks wait and run.
func TestChecksOfAChangingGateAreBounded(t *testing.T) {
	h := newHung(t)
	for range 1000 {
		for g := range 3 {
			for c := range 16 {
				h.check("a", fmt.Sprint("gate-", g), fmt.Sprint(c))
			}
		}
	}
	if running, waiting := len(h.running), len(h.waiting); running != maxProbes || waiting != 3*16-maxProbes {
		t.Errorf("%d checks run and %d wait, want %d and %d", running, waiting, maxProbes, 3*16-maxProbes)
	}
	h.forget("gate-2")
	if n := len(h.waiting); n != 0 {
		t.Errorf("%d checks of a deleted gate wait", n)
	}
}

// TestWaitingCheckRunsAsLastDefined ends a check, after which the one that waits has its turn.
func TestWaitingCheckRunsAsLastDefined(t *testing.T) {
	p, release, ran := &probes{}, make(chan struct{}), make(chan string, 3)
	for i := range maxProbes {
		p.run(probeKey{"g", fmt.Sprint(i)}, "a", func() { <-release }, func() {})
	}
	for _, generation := range []string{"first", "second"} {
		p.run(probeKey{"g", "last"}, "a", func() { ran <- generation }, func() {
			if p.isRunning(probeKey{"g", "last"}) {
				generation = "a check that runs when it is done"
			}
			ran <- "done " + generation
		})
	}
	close(release)
	if first, second := <-ran, <-ran; first != "second" || second != "done second" {
		t.Errorf("%q, then %q", first, second)
	}
}
