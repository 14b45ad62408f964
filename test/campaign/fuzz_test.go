package campaign

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// TestCampaignFuzz runs each fuzz target for ten minutes, the short form one of them for a moment. Inputs that reach
// new code stay in the cache of the go command, and inputs that fail in testdata/fuzz of the package.
func TestCampaignFuzz(t *testing.T) {
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	targets, duration := fuzzTargets(t, root), "10m"
	if !*isFull {
		targets, duration = only(t, targets, shortTarget), "2s"
	}
	e := begin(t, 1, len(targets))
	e.each(func(i int, _ *rand.Rand) {
		target := targets[i%len(targets)]
		args := []string{"test", "-run", "^$", "-fuzz", "^" + target.name + "$", "-fuzztime", duration,
			"-timeout", "30m", "./" + target.dir}
		if !*isFull { // inputs of long runs would take longer to read than the short form lasts
			args = append(args, "-args", "-test.fuzzcachedir="+t.TempDir())
		}
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = root
		start := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("new interesting")) {
			t.Errorf("%s of %s: %v\n%s", target.name, target.dir, err, out[max(0, len(out)-4000):])
		}
		t.Logf("%s of %s: %s", target.name, target.dir, time.Since(start).Round(time.Second))
	})
	e.note("%d targets, %s each", e.count, duration)
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
