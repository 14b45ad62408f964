package testenv

import (
	"testing"
	"time"
)

const (
	deadline    = 3 * time.Minute
	minInterval = 20 * time.Millisecond
	maxInterval = 100 * time.Millisecond
)

// Eventually calls check until it returns nil, and fails the test with the last error after three minutes. The timeout
// allows for slow test machines. The longer it takes, the less often it checks, so that many tests that wait leave the
// processors to those that work.
func Eventually(tb testing.TB, what string, check func() error) {
	tb.Helper()
	Within(tb, deadline, what, check)
}

// Within is Eventually with another timeout, of what must be quick.
func Within(tb testing.TB, limit time.Duration, what string, check func() error) {
	tb.Helper()
	end := time.NewTimer(limit)
	defer end.Stop()
	for interval := minInterval; ; interval = min(maxInterval, interval*11/10) {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-end.C:
			tb.Fatalf("%s: timeout after %s: %v", what, limit, err)
		case <-time.After(interval):
		}
	}
}
