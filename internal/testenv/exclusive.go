package testenv

import (
	"strings"
	"sync"
	"testing"
)

// maxExclusive is how many clusters a binary runs at most at a time for tests that use one alone.
const maxExclusive = 4

// assigned are the clusters of tests that do not use the one of all tests.
var assigned = struct {
	slots  chan struct{}
	mu     sync.Mutex
	byTest map[string]*shared
}{slots: make(chan struct{}, maxExclusive), byTest: map[string]*shared{}}

// Exclusive starts an empty cluster for a test: less work than to empty one that was used. All functions of this
// package use it for the test and its subtests. Call it before them, and after Parallel.
func Exclusive(t *testing.T) {
	t.Helper()
	assigned.slots <- struct{}{}
	t.Cleanup(func() { <-assigned.slots })
	c, err := startAnother()
	if err != nil {
		t.Fatalf("cannot start the playground: %v", err)
	}
	t.Cleanup(c.stop)
	assign(t, c)
}

// Second makes all functions of this package use a second cluster for the test and its subtests. All tests of a binary
// that call it share that cluster. Call it before them, and after Parallel.
func Second(t *testing.T) {
	t.Helper()
	c, err := startSecond()
	if err != nil {
		t.Fatalf("cannot start the playground: %v", err)
	}
	assign(t, c)
}

var startSecond = sync.OnceValues(startAnother)

func assign(t *testing.T, c *shared) {
	t.Helper()
	name := t.Name()
	assigned.mu.Lock()
	defer assigned.mu.Unlock()
	assigned.byTest[name] = c
	t.Cleanup(func() {
		assigned.mu.Lock()
		defer assigned.mu.Unlock()
		delete(assigned.byTest, name)
	})
}

// assignedTo returns the cluster of a test, or of the test of which it is a subtest; nil for the one of all tests.
func assignedTo(tb testing.TB) *shared {
	assigned.mu.Lock()
	defer assigned.mu.Unlock()
	for name := tb.Name(); ; name = name[:strings.LastIndexByte(name, '/')] {
		if c := assigned.byTest[name]; c != nil || !strings.Contains(name, "/") {
			return c
		}
	}
}
