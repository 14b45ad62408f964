package scan

import (
	"crypto/sha1"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// fakeFiles is a directory of files by name. They may share their content.
type fakeFiles map[string]string

func (f fakeFiles) List(_ plumbing.Hash, most int) ([]git.File, error) {
	if len(f) > most {
		return nil, git.ErrTooManyEntries
	}
	var files []git.File
	for _, name := range slices.Sorted(maps.Keys(f)) {
		files = append(files, git.File{Name: name, Regular: true, Hash: hashOf(f[name])})
	}
	return files, nil
}

func (f fakeFiles) Read(file plumbing.Hash, _ int64) ([]byte, error) {
	for _, content := range f {
		if hashOf(content) == file {
			return []byte(content), nil
		}
	}
	return nil, fmt.Errorf("%s not found", file)
}

// hashOf returns a hash of the size, the beginning and the end of a content, in which the contents differ.
func hashOf(content string) plumbing.Hash {
	n := min(len(content), 100)
	return sha1.Sum([]byte(fmt.Sprint(len(content), content[:n], content[len(content)-n:])))
}

func images(tag string) Plan {
	return plan(map[string]string{"web": "web:" + tag})
}

// TestEditsOfAScanAreBounded checks a small repository whose edited files are large: many names of one large file.
func TestEditsOfAScanAreBounded(t *testing.T) {
	testenv.Full(t)
	large := "image: web:1 " + marker("web") + "\nrest: " + strings.Repeat("x", 2<<20-200) + "\n"
	files, count := fakeFiles{}, int(MaxEdits()/(2<<20))+8
	for i := range count {
		files[fmt.Sprintf("%03d.yaml", i)] = large
	}
	budget := guard.NewBudget(2 << 30)
	ctx := guard.WithBudget(t.Context(), budget)
	s, scans := &Scanner{}, 0
	for incomplete := true; incomplete; scans++ {
		r, err := s.Scan(ctx, files, plumbing.ZeroHash, "", images("2"))
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, e := range r.Edits {
			sum += int64(len(e.Content))
			files[e.Path] = string(e.Content) // as if they were committed
		}
		if sum == 0 || sum > MaxEdits() {
			t.Fatalf("%d edits have %d bytes", len(r.Edits), sum)
		}
		if used := budget.Used(); used != held*sum {
			t.Errorf("%d bytes of the budget are used for %d", used, sum)
		}
		if r.Incomplete && len(r.Missing) > 0 {
			t.Error("an incomplete scan says what is missing")
		}
		incomplete = r.Incomplete
		r.Release()
		if used := budget.Used(); used != 0 {
			t.Errorf("%d bytes of the budget are used afterwards", used)
		}
	}
	for name, content := range files {
		if strings.HasPrefix(content, "image: web:1") {
			t.Fatalf("%s is not changed", name)
		}
	}
	if scans != 2 {
		t.Errorf("%d scans, want 2", scans)
	}
}

func TestMemoryOfEditsIsGivenBack(t *testing.T) {
	budget := guard.NewBudget(1 << 30)
	r, err := (&Scanner{}).Scan(guard.WithBudget(t.Context(), budget),
		fakeFiles{"a.yaml": "image: web:1 " + marker("web") + "\n"}, plumbing.ZeroHash, "", images("2"))
	if err != nil || budget.Used() == 0 {
		t.Fatalf("%v, %d bytes used", err, budget.Used())
	}
	runtime.KeepAlive(r)
	testenv.Eventually(t, "the memory is given back", func() error {
		runtime.GC()
		if used := budget.Used(); used > 0 {
			return fmt.Errorf("%d bytes are used", used)
		}
		return nil
	})
}

// TestFilesThatTakeMuchMemoryAreNotParsed checks a small file with very many values.
func TestFilesThatTakeMuchMemoryAreNotParsed(t *testing.T) {
	many := "image: web:1 " + marker("web") + "\nlist: [" + strings.Repeat("a,", 500_000) + "a]\n"
	files := fakeFiles{"many.yaml": many, "web.yaml": "image: web:1 " + marker("web") + "\n"}
	r, err := (&Scanner{}).Scan(guard.WithBudget(t.Context(), guard.NewBudget(64<<20)), files, plumbing.ZeroHash, "",
		images("2"))
	if err != nil || len(r.Edits) != 1 || r.Edits[0].Path != "web.yaml" {
		t.Fatalf("%v, %d edits", err, len(r.Edits))
	}
	if len(r.Problems) != 1 ||
		r.Problems[0].String() != "many.yaml: needs too much memory, not updated; split it" {
		t.Errorf("problems: %v", r.Problems)
	}
}

func TestManyChangesInOneFileAreMade(t *testing.T) {
	line := "- web:1 " + marker("web") + "\n"
	files := fakeFiles{"a.yaml": line, "many.yaml": strings.Repeat(line, maxChanges+1)}
	s := &Scanner{}
	for scan, want := range []string{"a.yaml", "many.yaml"} {
		r, err := s.Scan(t.Context(), files, plumbing.ZeroHash, "", images("2"))
		if err != nil || len(r.Edits) != 1 || r.Edits[0].Path != want || r.Incomplete != (scan == 0) {
			t.Fatalf("%v, %d edits, incomplete: %t", err, len(r.Edits), r.Incomplete)
		}
		files[want] = string(r.Edits[0].Content)
	}
}

func TestDirectoriesOfAScanAreBounded(t *testing.T) {
	long := fakeFiles{strings.Repeat("a", maxPath) + "/b.yaml": "image: web:1 " + marker("web") + "\n"}
	for want, files := range map[string]Files{"more than": tooMany{}, "is longer than 4096 bytes": long} {
		_, err := (&Scanner{}).Scan(t.Context(), files, plumbing.ZeroHash, "", images("2"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// tooMany is a directory that contains itself, with as many other entries as half of what is allowed.
type tooMany struct{ fakeFiles }

func (tooMany) List(_ plumbing.Hash, most int) ([]git.File, error) {
	files := make([]git.File, git.MaxEntries()/2)
	if len(files) > most {
		return nil, git.ErrTooManyEntries
	}
	files[0] = git.File{Name: "a", Dir: true}
	return files, nil
}

// TestTextsOfChangesAreBounded checks names and values of files that could be repeated in each change.
func TestTextsOfChangesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	content := "apiVersion: v1\nkind: Deployment\nmetadata: {name: " + long + "}\nspec:\n  containers:\n  - name: " +
		long + "\n    image: web:1 " + marker("web") + "\n  - name: b\n    image: web:" + long + " " + marker("web") +
		"\n" +
		"    args: [&" + long + " web:1, 1]\n    other: *" + long + " " + marker("web") + "\n"
	r, err := (&Scanner{}).Scan(t.Context(), fakeFiles{"a.yaml": content}, plumbing.ZeroHash, "", images("2"))
	if err != nil || len(r.Changes) != 1 || len(r.Problems) != 2 {
		t.Fatalf("%v, %d changes, problems %.300v", err, len(r.Changes), r.Problems)
	}
	if c := r.Changes[0]; len(fmt.Sprint(c)) > 1000 || !strings.HasPrefix(c.Container, "xxx") {
		t.Errorf("the change has %d bytes", len(fmt.Sprint(c)))
	}
	for _, p := range r.Problems {
		if len(p.String()) > 1000 {
			t.Errorf("the problem has %d bytes", len(p.String()))
		}
	}
}

func TestPoliciesOfFilesAreBounded(t *testing.T) {
	files := fakeFiles{}
	for n := range 3 {
		var b strings.Builder
		for i := range maxPolicies/2 - 1 {
			fmt.Fprintf(&b, "- a %s\n", marker(fmt.Sprint(n, "-", i)))
		}
		files[fmt.Sprint(n, ".yaml")] = b.String()
	}
	_, err := (&Scanner{}).Scan(t.Context(), files, plumbing.ZeroHash, "", Plan{Images: map[string]edit.Ref{}})
	if want := "the files refer to more than 20000 ImagePolicies"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestCachesOfScannersAreBounded checks that a namespace cannot take all memory for caches, and that it is given back.
func TestCachesOfScannersAreBounded(t *testing.T) {
	all := &cache{found: map[cacheKey]*finding{}}
	f := &finding{policies: []string{strings.Repeat("p", 1<<20)}}
	for i := range 1000 {
		all.add("tenant", cacheKey{hash: sha1.Sum([]byte(fmt.Sprint(i)))}, f)
	}
	if most := int(maxCached/2) >> 20; !all.full || len(all.found) > most || len(all.found) == 0 {
		t.Errorf("%d MiB are cached, full: %t", len(all.found), all.full)
	}
	other := &cache{found: map[cacheKey]*finding{}}
	if other.add("other", cacheKey{}, f); other.full {
		t.Error("another namespace has no cache")
	}
	s := &Scanner{cache: all}
	if s.resetIfStale(Plan{}); s.cache == all || s.cache.full {
		t.Error("a full cache is not replaced")
	}
	all = nil
	testenv.Eventually(t, "the memory is given back", func() error {
		runtime.GC()
		again := &cache{found: map[cacheKey]*finding{}}
		for i := range 3 {
			again.add("tenant", cacheKey{hash: sha1.Sum([]byte(fmt.Sprint(i)))}, f)
		}
		if again.full {
			return fmt.Errorf("it is full")
		}
		return nil
	})
}
