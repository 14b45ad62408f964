package testenv

import (
	"strings"
	"sync"
	"testing"
)

// maxExclusive is how many clusters a binary starts at most for tests that use one alone.
const maxExclusive = 4

// exclusive are the clusters of tests that use one alone.
var exclusive = struct {
	slots  chan struct{}
	mu     sync.Mutex
	idle   []*shared
	byTest map[string]*shared
}{slots: make(chan struct{}, maxExclusive), byTest: map[string]*shared{}}

// Exclusive gives a test a cluster that no other test uses until it ends. All functions of this package use it for the
// test and its subtests. Call it before them, and after Parallel. The cluster contains what an earlier test has left in
// it.
func Exclusive(t *testing.T) {
	t.Helper()
	exclusive.slots <- struct{}{}
	t.Cleanup(func() { <-exclusive.slots })
	c := takeIdle()
	if c == nil {
		var err error
		if c, err = startAnother(); err != nil {
			t.Fatalf("cannot start the playground: %v", err)
		}
	}
	name := t.Name()
	exclusive.mu.Lock()
	defer exclusive.mu.Unlock()
	exclusive.byTest[name] = c
	t.Cleanup(func() {
		exclusive.mu.Lock()
		defer exclusive.mu.Unlock()
		delete(exclusive.byTest, name)
		exclusive.idle = append(exclusive.idle, c)
	})
}

// takeIdle returns a cluster that no test uses; nil if there is none.
func takeIdle() *shared {
	exclusive.mu.Lock()
	defer exclusive.mu.Unlock()
	if len(exclusive.idle) == 0 {
		return nil
	}
	last := len(exclusive.idle) - 1
	c := exclusive.idle[last]
	exclusive.idle = exclusive.idle[:last]
	return c
}

// exclusiveOf returns the cluster that a test, or the test of which it is a subtest, uses alone; nil if there is none.
func exclusiveOf(tb testing.TB) *shared {
	exclusive.mu.Lock()
	defer exclusive.mu.Unlock()
	for name := tb.Name(); ; name = name[:strings.LastIndexByte(name, '/')] {
		if c := exclusive.byTest[name]; c != nil || !strings.Contains(name, "/") {
			return c
		}
	}
}
