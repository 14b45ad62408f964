package automate

import "testing"

// LimitCommits sets the maximum number of commits of a pass during a test.
func LimitCommits(t *testing.T, n int) {
	before := maxCommits
	maxCommits = n
	t.Cleanup(func() { maxCommits = before })
}
