package testenv

import (
	"testing"
	"time"
)

const (
	deadline = 3 * time.Minute
	interval = 20 * time.Millisecond
)

// Eventually calls check until it returns nil, and fails the test with the last error after three minutes. The timeout
// allows for slow test machines.
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
			tb.Fatalf("%s: timeout after %s: %v", what, deadline, err)
		case <-tick.C:
		}
	}
}
