package scan

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-gitops/sluice/internal/image/edit"
)

// finding is what was found in a file or below a directory.
type finding struct {
	policies []string // sorted
	found    []int    // indexes of bindings, sorted
	problems []edit.Problem
	upToDate bool              // nothing had to change for the images with this digest
	images   [sha256.Size]byte // digest of the images of the policies
}

var emptyFinding = &finding{upToDate: true}

// merge adds the finding of a file or directory below.
func (f *finding) merge(below *finding) error {
	f.policies = union(f.policies, below.policies)
	f.found = union(f.found, below.found)
	f.problems = append(f.problems, below.problems[:min(len(below.problems), maxProblems-len(f.problems))]...)
	if len(f.policies) > maxPolicies {
		return fmt.Errorf("the files refer to more than %d ImagePolicies", maxPolicies)
	}
	return nil
}

// relativeTo returns the finding with the paths of problems relative to a path.
func (f *finding) relativeTo(dir string) *finding {
	return f.withPaths(func(path string) string { return strings.TrimPrefix(path, dir) })
}

// resolvedIn is the inverse of relativeTo.
func (f *finding) resolvedIn(dir string) *finding {
	return f.withPaths(func(path string) string { return strings.TrimPrefix(dir+path, "/") })
}

func (f *finding) withPaths(convert func(string) string) *finding {
	if len(f.problems) == 0 {
		return f
	}
	copied := *f
	copied.problems = slices.Clone(f.problems)
	for i := range copied.problems {
		copied.problems[i].File = convert(copied.problems[i].File)
	}
	return &copied
}

func union[T interface{ ~string | ~int }](a, b []T) []T {
	if len(b) == 0 {
		return a
	}
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}

// digest returns a digest of the images of policies.
func digest(policies []string, images map[string]edit.Ref) [sha256.Size]byte {
	if len(policies) == 0 {
		return [sha256.Size]byte{}
	}
	h := sha256.New()
	for _, p := range policies {
		image, known := images[p]
		fmt.Fprintf(h, "%q %t %q\n", p, known, image)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
