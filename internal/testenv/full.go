package testenv

import (
	"os"
	"testing"
)

// fullEnv is set by make test-full.
const fullEnv = "SLUICE_TEST_FULL"

// Full skips a test unless the tests run in full. It is for tests that take longer than what they find in a change is
// worth: make test leaves them out, and make test-full runs each test that calls it.
func Full(tb testing.TB) {
	tb.Helper()
	if !IsFull() {
		tb.Skip("runs with make test-full")
	}
}

// IsFull reports whether the tests run in full.
func IsFull() bool { return os.Getenv(fullEnv) != "" }
