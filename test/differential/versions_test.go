package differential

import (
	"cmp"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/source/oci"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

// The versions row: ranges over tags of public projects and made-up ones. The result is found by a rule that is
// written here, apart from the product: a version has three numbers, which are compared as semantic versions are.

// plainVersion is a version as this file reads it.
type plainVersion struct {
	tag     string
	numbers [3]uint64
	pre     []string
}

// plainVersionOf reads a tag. Tags of one or two numbers are not versions.
func plainVersionOf(tag string) (v plainVersion, ok bool) {
	v.tag = tag
	rest, build, hasBuild := strings.Cut(strings.TrimPrefix(tag, "v"), "+")
	core, pre, hasPre := strings.Cut(rest, "-")
	if strings.Count(tag, ".") < 2 || hasBuild && !validIdentifiers(build, false) || hasPre &&
		!validIdentifiers(pre, true) {
		return v, false
	}
	numbers := strings.Split(core, ".")
	if len(numbers) > 3 {
		return v, false
	}
	for i, n := range numbers {
		value, err := strconv.ParseUint(n, 10, 64)
		if err != nil || strings.HasPrefix(n, "+") {
			return v, false
		}
		v.numbers[i] = value
	}
	if hasPre {
		v.pre = strings.Split(pre, ".")
	}
	return v, true
}

// validIdentifiers checks the parts of a prerelease, whose numbers have no leading zeros, or of build metadata.
func validIdentifiers(text string, prerelease bool) bool {
	for part := range strings.SplitSeq(text, ".") {
		_, err := strconv.ParseUint(part, 10, 64)
		if part == "" || strings.Trim(part, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" ||
			prerelease && err == nil && len(part) > 1 && part[0] == '0' {
			return false
		}
	}
	return true
}

func (v plainVersion) compare(w plainVersion) int {
	if c := slices.Compare(v.numbers[:], w.numbers[:]); c != 0 {
		return c
	}
	if len(v.pre) == 0 || len(w.pre) == 0 {
		return cmp.Compare(len(w.pre), len(v.pre)) // a release follows its prereleases
	}
	return slices.CompareFunc(v.pre, w.pre, func(a, b string) int {
		x, errX := strconv.ParseUint(a, 10, 64)
		y, errY := strconv.ParseUint(b, 10, 64)
		switch {
		case errX == nil && errY == nil:
			return cmp.Compare(x, y)
		case errX == nil:
			return -1
		case errY == nil:
			return 1
		}
		return strings.Compare(a, b)
	})
}

// plainRange is a range with its meaning.
type plainRange struct {
	text  string
	holds func(plainVersion) bool
	parts []plainRange // nil for a range about one version
}

// rangeFrom makes a range about a version. Prereleases are in it only if its own version is one.
func rangeFrom(r *rand.Rand, v plainVersion) plainRange {
	n, pre := v.numbers, ""
	if v.pre != nil {
		pre = "-" + strings.Join(v.pre, ".")
	}
	full := fmt.Sprintf("%d.%d.%d%s", n[0], n[1], n[2], pre)
	kinds := map[string]func(w plainVersion) bool{
		"=" + full:  func(w plainVersion) bool { return w.compare(v) == 0 },
		full:        func(w plainVersion) bool { return w.compare(v) == 0 },
		"!=" + full: func(w plainVersion) bool { return w.compare(v) != 0 },
		">" + full:  func(w plainVersion) bool { return w.compare(v) > 0 },
		">=" + full: func(w plainVersion) bool { return w.compare(v) >= 0 },
		"<" + full:  func(w plainVersion) bool { return w.compare(v) < 0 },
		"<=" + full: func(w plainVersion) bool { return w.compare(v) <= 0 },
	}
	if n[0] > 0 { // the range library has rules of its own for ^0.x and ~0.0.0
		kinds["^"+full] = func(w plainVersion) bool { return w.compare(v) >= 0 && w.numbers[0] == n[0] }
		kinds["~"+full] = func(w plainVersion) bool {
			return w.compare(v) >= 0 && w.numbers[0] == n[0] && w.numbers[1] == n[1]
		}
	}
	if pre == "" {
		kinds[fmt.Sprintf("%d.x", n[0])] = func(w plainVersion) bool { return w.numbers[0] == n[0] }
		kinds[fmt.Sprintf("%d.%d.x", n[0], n[1])] = func(w plainVersion) bool {
			return w.numbers[0] == n[0] && w.numbers[1] == n[1]
		}
		kinds["*"] = func(plainVersion) bool { return true }
		kinds[fmt.Sprintf(">=%d", n[0])] = func(w plainVersion) bool { return w.numbers[0] >= n[0] }
		kinds[fmt.Sprintf(">=%d.%d", n[0], n[1])] = func(w plainVersion) bool {
			return slices.Compare(w.numbers[:2], n[:2]) >= 0
		}
	}
	texts := make([]string, 0, len(kinds))
	for text := range kinds {
		texts = append(texts, text)
	}
	slices.Sort(texts)
	text := texts[r.IntN(len(texts))]
	return plainRange{text, func(w plainVersion) bool { return (w.pre == nil || pre != "") && kinds[text](w) }, nil}
}

// generateRange makes a range, or two of which one or both must hold, about versions of the tags.
func generateRange(r *rand.Rand, versions []plainVersion) plainRange {
	one := func() plainRange { return rangeFrom(r, versions[r.IntN(len(versions))]) }
	a := one()
	switch r.IntN(4) {
	case 0:
		b := one()
		return plainRange{a.text + " || " + b.text, func(v plainVersion) bool { return a.holds(v) || b.holds(v) },
			[]plainRange{a, b}}
	case 1: // both have prereleases or none, as one with a prerelease includes those of the other
		b := rangeFrom(r, versions[r.IntN(len(versions))])
		if strings.Contains(a.text, "-") == strings.Contains(b.text, "-") {
			separator := []string{" ", ", ", ","}[r.IntN(3)]
			return plainRange{a.text + separator + b.text,
				func(v plainVersion) bool { return a.holds(v) && b.holds(v) }, []plainRange{a, b}}
		}
	}
	return a
}

// highestByRule returns the versions in a range that are equal to the highest one.
func highestByRule(versions []plainVersion, in plainRange) []string {
	var best []plainVersion
	for _, v := range versions {
		switch {
		case !in.holds(v):
		case len(best) == 0 || v.compare(best[0]) > 0:
			best = []plainVersion{v}
		case v.compare(best[0]) == 0:
			best = append(best, v)
		}
	}
	tags := make([]string, len(best))
	for i, v := range best {
		tags[i] = v.tag
	}
	return tags
}

// tagLists returns the tags of each project in testdata/versions.
func tagLists(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("testdata/versions/*.txt")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	lists := map[string][]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lists[strings.TrimSuffix(filepath.Base(file), ".txt")] = strings.Fields(string(data))
	}
	return lists
}

// selector selects a tag by a range; an error means none.
type selector func(versions string) (string, error)

// checkSelections compares a selector with the rule for generated ranges, without those that select among tags that the
// rule finds equal, and requires that enough ranges select something.
func checkSelections(t *testing.T, seed uint64, count int, tags []string, selects selector) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	var versions []plainVersion
	for _, tag := range tags {
		if v, ok := plainVersionOf(tag); ok {
			versions = append(versions, v)
		}
	}
	selected := 0
	for range count {
		in := generateRange(r, versions)
		isSelected, difference := compareSelection(in, versions, selects)
		if difference != "" {
			for _, part := range in.parts {
				if _, smaller := compareSelection(part, versions, selects); smaller != "" {
					difference = smaller
				}
			}
			t.Error(difference)
		}
		if isSelected {
			selected++
		}
	}
	if selected < count/2 {
		t.Errorf("only %d of %d ranges select a tag", selected, count)
	}
}

// casesOf returns how many cases a row has by default, or ten times as many with SLUICE_DIFFERENTIAL=full.
func casesOf(count int) int {
	if os.Getenv("SLUICE_DIFFERENTIAL") == "full" {
		return 10 * count
	}
	return count
}

func TestVersionsOfImagePolicies(t *testing.T) {
	t.Parallel()
	for project, tags := range tagLists(t) {
		found := make([]policy.Tag, len(tags))
		for i, tag := range tags {
			found[i].Name = tag
		}
		each := iter.Seq[*policy.Tag](func(yield func(*policy.Tag) bool) {
			for i := range found {
				if !yield(&found[i]) {
					return
				}
			}
		})
		t.Run(project, func(t *testing.T) {
			t.Parallel()
			checkSelections(t, 1, casesOf(300), tags, func(versions string) (string, error) {
				p, err := policy.New(imagev1.ImagePolicySpec{Policy: imagev1.ImagePolicyChoice{
					SemVer: &imagev1.SemVerPolicy{Range: versions}}})
				if err != nil {
					t.Fatal(err)
				}
				ordered, err := p.Order(t.Context(), each)
				if err == nil && len(ordered) == 0 {
					return "", fmt.Errorf("no tag is in %s", versions)
				}
				return append(ordered, policy.Tag{})[0].Name, err
			})
		})
	}
}

func TestVersionsOfOCIRepositories(t *testing.T) {
	t.Parallel()
	r := ociregistry.New(t)
	for project, tags := range tagLists(t) {
		t.Run(project, func(t *testing.T) {
			t.Parallel()
			repository, err := oci.Open(r.OCI+"/"+project, oci.Access{Transport: r.Transport(), Insecure: r.CA == nil})
			if err != nil {
				t.Fatal(err)
			}
			at, err := oci.ParseURL(r.OCI+"/"+project, r.CA == nil)
			if err != nil {
				t.Fatal(err)
			}
			tags := slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return !oci.IsTag(tag) })
			for _, tag := range tags {
				if err := remote.Write(at.Tag(tag), empty.Image, remote.WithTransport(r.Transport())); err != nil {
					t.Fatal(err)
				}
			}
			checkSelections(t, 2, casesOf(40), tags, func(versions string) (string, error) {
				revision, err := repository.Resolve(t.Context(), oci.Reference{SemVer: versions})
				return revision.Tag, err
			})
		})
	}
}

func TestVersionsOfGitRepositories(t *testing.T) {
	t.Parallel()
	g := testenv.NewGit(t)
	for project, tags := range tagLists(t) {
		commit := g.Commit(project, map[string]string{"a.yaml": "1"})
		packed := "# pack-refs with: peeled fully-peeled sorted\n"
		for _, tag := range slices.Sorted(slices.Values(tags)) {
			packed += commit + " refs/tags/" + tag + "\n"
		}
		file := filepath.Join(g.Root, project+".git", "packed-refs")
		if err := os.WriteFile(file, []byte(packed), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Run(project, func(t *testing.T) {
			t.Parallel()
			view := git.NewMirrors(t.TempDir()).View("differential")
			checkSelections(t, 3, casesOf(20), tags, func(versions string) (string, error) {
				revision, err := view.Update(t.Context(), git.Remote{URL: g.URL + "/" + project},
					git.Reference{SemVer: versions}, true)
				return revision.Ref, err
			})
		})
	}
}

// compareSelection reports whether a range selects a tag, and says how that differs from the rule.
func compareSelection(in plainRange, versions []plainVersion, selects selector) (isSelected bool, difference string) {
	want := highestByRule(versions, in)
	got, err := selects(in.text)
	if (err == nil) != (len(want) > 0) || err == nil && !slices.Contains(want, got) {
		difference = fmt.Sprintf("range %q: got %q and %v, want one of %q", in.text, got, err, want)
	}
	return err == nil, difference
}
