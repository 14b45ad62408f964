package testenv

import (
	"testing"
	"time"
)

const (
	deadline = 3 * time.Minute // of everything that a test waits for
	interval = 20 * time.Millisecond
)

// Eventually waits until check returns nil, and fails the test with its last error after three minutes: a
// test machine may stand still for long.
func Eventually(tb testing.TB, what string, check func() error) {
	tb.Helper()
	end := time.NewTimer(deadline)
	defer end.Stop()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-end.C:
			tb.Fatalf("%s: not within %s: %v", what, deadline, err)
		case <-tick.C:
		}
	}
}
