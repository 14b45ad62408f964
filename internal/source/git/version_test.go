package git

import (
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
)

// TestRangeSelectsVersionsOfThreeNumbers checks that dates and moving tags are not versions.
func TestRangeSelectsVersionsOfThreeNumbers(t *testing.T) {
	t.Parallel()
	commit := plumbing.NewHash(strings.Repeat("a", 40))
	resolve := func(versions string, tags ...string) (string, error) {
		refs := packp.NewAdvRefs()
		for _, tag := range tags {
			refs.References[tagPrefix+tag] = commit
		}
		got, err := Reference{SemVer: versions}.resolve(refs)
		return got.Ref, err
	}
	for want, c := range map[string]struct {
		versions string
		tags     string
	}{
		"v1.2.5": {">=1.0.0", "v1.2.0 v1.2.5 v1.2 v1 20241105 v20241105 2024.11"},
		"v1.2.0": {"1.2.0", "v1.2.0 v1.2 v1 1.2"},
		"2.6.0":  {">=2.0.0", "2.5.1 2.6.0 20240215 3 3.0"},
	} {
		if got, err := resolve(c.versions, strings.Fields(c.tags)...); err != nil || got != want {
			t.Errorf("got %s and %v, want %s", got, err, want)
		}
	}
	_, err := resolve(">=2", "20240215")
	if want := "no tag matches semver '>=2' (1 tag checked). The remote has no tag that is a version of three " +
		"numbers, such as v1.2.0"; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}
