package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestComposePutsLayersOverEachOther(t *testing.T) {
	base := FromMap(map[string]string{"a.yaml": "a", "dir/b.yaml": "b", "dir/sub/c": "c", "link": "symlink:dir"})
	other := FromMap(map[string]string{"b.yaml": "other b", "sub/d": "d", "x": "x"})
	for what, c := range map[string]struct {
		layers []Layer
		want   map[string]string
	}{
		"one":                      {[]Layer{{base, ".", "."}}, contents(t, base)},
		"none":                     {nil, map[string]string{}},
		"a directory at the root":  {[]Layer{{base, "dir", "."}}, map[string]string{"b.yaml": "b", "sub/c": "c"}},
		"a directory below others": {[]Layer{{base, "dir/sub", "x/y/z"}}, map[string]string{"x/y/z/c": "c"}},
		"a file under another name": {[]Layer{{base, "a.yaml", "x/other.yaml"}},
			map[string]string{"x/other.yaml": "a"}},
		"through a link": {[]Layer{{base, "link/b.yaml", "b"}}, map[string]string{"b": "b"}},
		"a link's directory": {[]Layer{{base, "link", "x"}},
			map[string]string{"x/b.yaml": "b", "x/sub/c": "c"}},
		"directories merge": {[]Layer{{base, "dir", "."}, {other, ".", "."}},
			map[string]string{"b.yaml": "other b", "sub/c": "c", "sub/d": "d", "x": "x"}},
		"the later wins": {[]Layer{{other, ".", "."}, {base, "dir", "."}},
			map[string]string{"b.yaml": "b", "sub/c": "c", "sub/d": "d", "x": "x"}},
		"a file over a directory": {[]Layer{{base, "dir", "."}, {other, "x", "sub"}},
			map[string]string{"b.yaml": "b", "sub": "x"}},
		"a directory over a file": {[]Layer{{other, ".", "."}, {base, "dir/sub", "x"}},
			map[string]string{"b.yaml": "other b", "sub/d": "d", "x/c": "c"}},
		"a directory over a link": {[]Layer{{base, "link", "dir"}, {base, ".", "y"}, {other, "sub", "y/link"}},
			map[string]string{"dir/b.yaml": "b", "dir/sub/c": "c", "y/a.yaml": "a", "y/dir/b.yaml": "b",
				"y/dir/sub/c": "c", "y/link/d": "d"}},
		"below what was a directory": {[]Layer{{base, "dir", "d"}, {other, "sub", "d/sub"}},
			map[string]string{"d/b.yaml": "b", "d/sub/c": "c", "d/sub/d": "d"}},
	} {
		t.Run(what, func(t *testing.T) {
			got, err := Compose(c.layers...)
			must(t, err)
			if !maps.Equal(contents(t, got), c.want) {
				t.Errorf("got %q, want %q", contents(t, got), c.want)
			}
			if got.Root().ID != FromMap(c.want).Root().ID {
				t.Error("the ID differs from that of a tree with the same files")
			}
		})
	}
}

func TestComposeSharesWhatIsAsItWas(t *testing.T) {
	base := FromMap(manyFiles(500, 1))
	reads := &countingContent{Content: base.content}
	base.content = reads
	got, err := Compose(Layer{base, ".", "."}, Layer{FromMap(map[string]string{"x": "x"}), ".", "dir0/new"})
	must(t, err)
	for _, dir := range []string{"dir1", "dir0/sub1"} {
		before, err1 := base.lookup("", dir, false)
		after, err2 := got.lookup("", dir, false)
		must(t, errors.Join(err1, err2))
		if before.Dir != after.Dir {
			t.Errorf("%s was copied", dir)
		}
	}
	if reads.n != 0 {
		t.Errorf("%d contents were read", reads.n)
	}
}

func TestComposeNeverAsksOnePartForAnothers(t *testing.T) {
	parts := []*Tree{FromMap(map[string]string{"a": "1"}), FromMap(map[string]string{"b": "2"})}
	for _, p := range parts {
		p.content = &jealous{t, p.content}
	}
	got, err := Compose(Layer{parts[0], ".", "."}, Layer{parts[1], ".", "."})
	must(t, err)
	if want := map[string]string{"a": "1", "b": "2"}; !maps.Equal(contents(t, got), want) {
		t.Errorf("got %v", contents(t, got))
	}
	if _, err := got.content.Read("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// jealous is content that fails the test if it is asked for an ID that it does not have.
type jealous struct {
	t *testing.T
	Content
}

func (j *jealous) Read(id string) ([]byte, error) {
	b, err := j.Content.Read(id)
	if err != nil {
		j.t.Errorf("content that it does not have was requested: %s", id)
	}
	return b, err
}

func TestComposeOfComposedAsksTheFirstOwners(t *testing.T) {
	tree := FromMap(map[string]string{"first": "0"})
	for i := range 50 {
		next := FromMap(map[string]string{fmt.Sprint(i): fmt.Sprint(i)})
		composed, err := Compose(Layer{tree, ".", "."}, Layer{next, ".", "."})
		must(t, err)
		tree = composed
	}
	for id, c := range tree.content.(owners) {
		if _, nested := c.(owners); nested {
			t.Fatalf("the content of %s belongs to another composed tree", id)
		}
	}
	if got := contents(t, tree); len(got) != 51 || got["first"] != "0" || got["49"] != "49" {
		t.Errorf("got %v", got)
	}
}

func TestComposeRefuses(t *testing.T) {
	tree := FromMap(map[string]string{"a": "a", "out": "symlink:../x", "dir/b": "b"})
	for what, c := range map[string]struct {
		layer Layer
		err   error
	}{
		"an absent path":           {Layer{tree, "none", "."}, fs.ErrNotExist},
		"a path out":               {Layer{tree, "../a", "."}, fs.ErrInvalid},
		"a destination out":        {Layer{tree, ".", "../a"}, fs.ErrInvalid},
		"an absolute destination":  {Layer{tree, ".", "/a"}, fs.ErrInvalid},
		"a link out":               {Layer{tree, "out", "x"}, fs.ErrInvalid},
		"a file as the root":       {Layer{tree, "a", "."}, fs.ErrInvalid},
		"a path below a file":      {Layer{tree, "a/b", "x"}, fs.ErrNotExist},
		"a path that is not clean": {Layer{tree, "dir", "x//y/"}, fs.ErrInvalid},
	} {
		if _, err := Compose(c.layer); !errors.Is(err, c.err) {
			t.Errorf("%s: got %v, want %v", what, err, c.err)
		}
	}
}

func TestSelectKeepsFiles(t *testing.T) {
	tree := FromMap(map[string]string{"a.yaml": "a", "a.md": "a", "docs/b.md": "b", "dir/c.yaml": "c",
		"dir/sub/d.yaml": "d"})
	got := tree.Select(func(name string) bool { return !strings.HasSuffix(name, ".md") })
	if want := map[string]string{"a.yaml": "a", "dir/c.yaml": "c",
		"dir/sub/d.yaml": "d"}; !maps.Equal(contents(t, got), want) {
		t.Errorf("got %v", contents(t, got))
	}
	if _, err := got.Stat("docs"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory without files exists: %v", err)
	}
	if all := tree.Select(func(string) bool { return true }); all.root != tree.root {
		t.Error("a tree that was not changed was copied")
	}
}

func TestAtGivesWhatIsBelow(t *testing.T) {
	tree := FromMap(map[string]string{"dir/a": "a", "file": "x", "link": "symlink:dir"})
	for _, dir := range []string{"dir", "./dir/", "link"} {
		got, err := tree.At(dir)
		must(t, err)
		if want := map[string]string{"a": "a"}; !maps.Equal(contents(t, got), want) {
			t.Errorf("%s: got %v", dir, contents(t, got))
		}
	}
	for dir, want := range map[string]error{"file": fs.ErrInvalid, "none": fs.ErrNotExist, "../dir": fs.ErrInvalid} {
		if _, err := tree.At(dir); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", dir, err, want)
		}
	}
}

func TestNewMemory(t *testing.T) {
	tree, err := NewMemory(map[string]File{
		"a": {0o600, []byte("symlink:b")}, "dir/run": {0o744, []byte("#!")},
		"dir/link": {fs.ModeSymlink, []byte("run")},
	})
	must(t, err)
	for name, want := range map[string]fs.FileMode{"a": 0o644, "dir/run": 0o755, "dir/link": fs.ModeSymlink | 0o777} {
		if info, err := tree.Lstat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	if b, err := tree.ReadFile("a"); err != nil || string(b) != "symlink:b" {
		t.Errorf("%q %v", b, err)
	}
	for _, files := range []map[string]File{
		{"../a": {}}, {"/a": {}}, {".": {}}, {"": {}}, {"a/": {}}, {"a": {fs.ModeDir, nil}},
		{"a": {fs.ModeDevice, nil}}, {"a": {}, "A": {}}, {"\xff": {}},
	} {
		if _, err := NewMemory(files); err == nil {
			t.Errorf("%q was accepted", slices.Collect(maps.Keys(files)))
		}
	}
}
