package campaign

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// fuzzTarget is a fuzz test of a parser.
type fuzzTarget struct {
	dir  string // relative to the root of the module
	name string
}

var fuzzFunction = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// shortTarget builds fast, as its package imports few others.
const shortTarget = "FuzzText"

// maxKept is the size, in bytes, of the largest input that is kept.
const maxKept = 16 << 10

// TestCampaignFuzz runs each fuzz target for ten minutes, the short form one of them for a moment. In full, inputs that
// reach new statements are added to testdata/fuzz of the package, where the go command adds those that fail.
func TestCampaignFuzz(t *testing.T) {
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	targets, duration := fuzzTargets(t, root), "20s"
	if !*isFull {
		targets, duration = only(t, targets, shortTarget), "2s"
	}
	e := begin(t, 1, len(targets))
	kept := 0
	e.each(func(i int, _ *rand.Rand) {
		target := targets[i%len(targets)]
		start, found := time.Now(), t.TempDir()
		out, err := command(t, root, "go", "test", "-run", "^$", "-fuzz", "^"+target.name+"$", "-fuzztime", duration,
			"-timeout", "30m", "./"+target.dir, "-args", "-test.fuzzcachedir="+found).CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("new interesting")) {
			t.Errorf("%s of %s: %v\n%s", target.name, target.dir, err, out[max(0, len(out)-4000):])
		}
		if *isFull {
			kept += target.keep(t, root, filepath.Join(found, target.name))
		}
		t.Logf("%s of %s: %s", target.name, target.dir, time.Since(start).Round(time.Second))
	})
	e.note("%d targets, %s each, %d inputs added to testdata/fuzz", e.count, duration, kept)
}

func command(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	return cmd
}

// fuzzTargets returns the fuzz targets of the module, sorted by directory.
func fuzzTargets(t *testing.T, root string) []fuzzTarget {
	t.Helper()
	var targets []fuzzTarget
	for _, top := range []string{"api", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if match, _ := filepath.Match("*_test.go", filepath.Base(path)); err != nil || d.IsDir() || !match {
				return err
			}
			content, err := os.ReadFile(path)
			dir, relative := filepath.Rel(root, filepath.Dir(path))
			for _, m := range fuzzFunction.FindAllSubmatch(content, -1) {
				targets = append(targets, fuzzTarget{dir: dir, name: string(m[1])})
			}
			return errors.Join(err, relative)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return targets
}

func only(t *testing.T, targets []fuzzTarget, name string) []fuzzTarget {
	t.Helper()
	for _, target := range targets {
		if target.name == name {
			return []fuzzTarget{target}
		}
	}
	t.Fatalf("no target is called %s", name)
	return nil
}

// statements are lines of a coverage profile.
type statements map[string]bool

// keep copies the inputs that were found to testdata/fuzz, and removes those again that reach no statement of the
// package which the ones before them do not. It returns how many are left.
func (f fuzzTarget) keep(t *testing.T, root, found string) int {
	t.Helper()
	dir, bin := filepath.Join(root, f.dir), filepath.Join(t.TempDir(), "covered.test")
	build := command(t, dir, "go", "test", "-c", "-covermode", "set", "-o", bin, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build of %s: %v\n%s", f.dir, err, out)
	}
	known := f.reached(t, dir, bin, nil)
	corpus := filepath.Join(dir, "testdata", "fuzz", f.name)
	inputs := f.add(t, corpus, found)
	kept := reaching(inputs, known, func(inputs []string) statements { return f.reached(t, dir, bin, inputs) })
	for _, input := range inputs {
		if slices.Contains(kept, input) {
			continue
		}
		if err := os.Remove(filepath.Join(corpus, input)); err != nil {
			t.Error(err)
		}
	}
	return len(kept)
}

// add copies inputs of at most [maxKept] that are not in the corpus, and returns their names, the smallest first.
func (f fuzzTarget) add(t *testing.T, corpus, found string) []string {
	t.Helper()
	files, err := os.ReadDir(found)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // nothing was found
		t.Fatal(err)
	}
	sizes := map[string]int{}
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(found, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(corpus, file.Name())
		if _, err := os.Stat(path); err == nil || len(content) > maxKept {
			continue
		}
		if err := errors.Join(os.MkdirAll(corpus, 0o755), os.WriteFile(path, content, 0o644)); err != nil {
			t.Fatal(err)
		}
		sizes[file.Name()] = len(content)
	}
	return slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[a], sizes[b]), cmp.Compare(a, b))
	})
}

// reached returns what inputs of the corpus reach, or all of the corpus and those of the code if there are none.
func (f fuzzTarget) reached(t *testing.T, dir, bin string, inputs []string) statements {
	t.Helper()
	run, profile := "^"+f.name+"$", filepath.Join(t.TempDir(), "profile")
	if len(inputs) > 0 {
		run += "/^(" + strings.Join(inputs, "|") + ")$"
	}
	if out, err := command(t, dir, bin, "-test.run", run, "-test.coverprofile", profile).CombinedOutput(); err != nil {
		t.Errorf("%s of %s: %v\n%s", f.name, f.dir, err, out[max(0, len(out)-4000):])
	}
	content, err := os.ReadFile(profile)
	if err != nil {
		t.Error(err)
	}
	reached := statements{}
	for line := range strings.Lines(string(content)) {
		if strings.HasSuffix(line, " 1\n") {
			reached[line] = true
		}
	}
	return reached
}

// reaching returns inputs that reach all statements which inputs reach and known does not contain. It adds these
// statements to known. Halves of inputs that reach nothing new are not divided further.
func reaching(inputs []string, known statements, reached func([]string) statements) []string {
	if len(inputs) == 0 {
		return nil
	}
	all := reached(inputs)
	maps.DeleteFunc(all, func(line string, _ bool) bool { return known[line] })
	switch {
	case len(all) == 0:
		return nil
	case len(inputs) == 1:
		maps.Copy(known, all)
		return inputs
	}
	half := len(inputs) / 2
	return slices.Concat(reaching(inputs[:half], known, reached), reaching(inputs[half:], known, reached))
}

func TestInputsThatReachNewStatementsAreKept(t *testing.T) {
	reach := map[string][]string{"a": {"1"}, "b": {"1", "2"}, "c": {"2"}, "d": {"3", "0"}, "e": {"0"}, "f": {"4"}}
	runs, inputs := 0, []string{"a", "b", "c", "d", "e", "f", "a", "b"}
	kept := reaching(inputs, statements{"0": true}, func(in []string) statements {
		runs++
		all := statements{}
		for _, input := range in {
			for _, line := range reach[input] {
				all[line] = true
			}
		}
		return all
	})
	if want := []string{"a", "b", "d", "f"}; !slices.Equal(kept, want) {
		t.Errorf("kept %v, want %v", kept, want)
	}
	if again := reaching([]string{"a"}, statements{"1": true}, func([]string) statements {
		return statements{"1": true}
	}); again != nil || runs > 15 {
		t.Errorf("kept %v of known statements; %d runs", again, runs)
	}
}
