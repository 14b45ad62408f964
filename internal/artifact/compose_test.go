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
		"one":  {layers: []Layer{{Tree: base, From: ".", To: "."}}, want: contents(t, base)},
		"none": {layers: nil, want: map[string]string{}},
		"a directory at the root": {layers: []Layer{{Tree: base, From: "dir", To: "."}},
			want: map[string]string{"b.yaml": "b", "sub/c": "c"}},
		"a directory below others": {layers: []Layer{{Tree: base, From: "dir/sub", To: "x/y/z"}},
			want: map[string]string{"x/y/z/c": "c"}},
		"a file under another name": {layers: []Layer{{Tree: base, From: "a.yaml", To: "x/other.yaml"}},
			want: map[string]string{"x/other.yaml": "a"}},
		"through a link": {layers: []Layer{{Tree: base, From: "link/b.yaml", To: "b"}},
			want: map[string]string{"b": "b"}},
		"a link's directory": {layers: []Layer{{Tree: base, From: "link", To: "x"}},
			want: map[string]string{"x/b.yaml": "b", "x/sub/c": "c"}},
		"directories merge": {layers: []Layer{{Tree: base, From: "dir", To: "."}, {Tree: other, From: ".", To: "."}},
			want: map[string]string{"b.yaml": "other b", "sub/c": "c", "sub/d": "d", "x": "x"}},
		"the later wins": {layers: []Layer{{Tree: other, From: ".", To: "."}, {Tree: base, From: "dir", To: "."}},
			want: map[string]string{"b.yaml": "b", "sub/c": "c", "sub/d": "d", "x": "x"}},
		"a file over a directory": {layers: []Layer{{Tree: base, From: "dir", To: "."},
			{Tree: other, From: "x", To: "sub"}},
			want: map[string]string{"b.yaml": "b", "sub": "x"}},
		"a directory over a file": {layers: []Layer{{Tree: other, From: ".", To: "."},
			{Tree: base, From: "dir/sub", To: "x"}},
			want: map[string]string{"b.yaml": "other b", "sub/d": "d", "x/c": "c"}},
		"a directory over a link": {layers: []Layer{{Tree: base, From: "link", To: "dir"},
			{Tree: base, From: ".", To: "y"}, {Tree: other, From: "sub", To: "y/link"}},
			want: map[string]string{"dir/b.yaml": "b", "dir/sub/c": "c", "y/a.yaml": "a", "y/dir/b.yaml": "b",
				"y/dir/sub/c": "c", "y/link/d": "d"}},
		"below what was a directory": {layers: []Layer{{Tree: base, From: "dir", To: "d"},
			{Tree: other, From: "sub", To: "d/sub"}},
			want: map[string]string{"d/b.yaml": "b", "d/sub/c": "c", "d/sub/d": "d"}},
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
	got, err := Compose(Layer{Tree: base, From: ".", To: "."}, Layer{Tree: FromMap(map[string]string{"x": "x"}),
		From: ".", To: "dir0/new"})
	must(t, err)
	for _, dir := range []string{"dir1", "dir0/sub1"} {
		before, err1 := base.lookup("", dir, false)
		after, err2 := got.lookup("", dir, false)
		must(t, errors.Join(err1, err2))
		if before.Dir != after.Dir {
			t.Errorf("%s was copied", dir)
		}
	}
	if reads.n.Load() != 0 {
		t.Errorf("%d contents were read", reads.n.Load())
	}
}

func TestComposeNeverAsksOnePartForAnothers(t *testing.T) {
	parts := []*Tree{FromMap(map[string]string{"a": "1"}), FromMap(map[string]string{"b": "2"})}
	for _, p := range parts {
		p.content = &jealous{t, p.content}
	}
	got, err := Compose(Layer{Tree: parts[0], From: ".", To: "."}, Layer{Tree: parts[1], From: ".", To: "."})
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
		composed, err := Compose(Layer{Tree: tree, From: ".", To: "."}, Layer{Tree: next, From: ".", To: "."})
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
		"an absent path":           {layer: Layer{Tree: tree, From: "none", To: "."}, err: fs.ErrNotExist},
		"a path out":               {layer: Layer{Tree: tree, From: "../a", To: "."}, err: fs.ErrInvalid},
		"a destination out":        {layer: Layer{Tree: tree, From: ".", To: "../a"}, err: fs.ErrInvalid},
		"an absolute destination":  {layer: Layer{Tree: tree, From: ".", To: "/a"}, err: fs.ErrInvalid},
		"a link out":               {layer: Layer{Tree: tree, From: "out", To: "x"}, err: fs.ErrInvalid},
		"a file as the root":       {layer: Layer{Tree: tree, From: "a", To: "."}, err: fs.ErrInvalid},
		"a path below a file":      {layer: Layer{Tree: tree, From: "a/b", To: "x"}, err: fs.ErrNotExist},
		"a path that is not clean": {layer: Layer{Tree: tree, From: "dir", To: "x//y/"}, err: fs.ErrInvalid},
	} {
		if _, err := Compose(c.layer); !errors.Is(err, c.err) {
			t.Errorf("%s: got %v, want %v", what, err, c.err)
		}
	}
}

func TestSelectKeepsFiles(t *testing.T) {
	tree := FromMap(map[string]string{"a.yaml": "a", "a.md": "a", "docs/b.md": "b", "dir/c.yaml": "c",
		"dir/sub/d.yaml": "d"})
	got := tree.Select(func(name string, isDir bool) bool {
		return !isDir && !strings.HasSuffix(name, ".md")
	})
	if want := map[string]string{"a.yaml": "a", "dir/c.yaml": "c",
		"dir/sub/d.yaml": "d"}; !maps.Equal(contents(t, got), want) {
		t.Errorf("got %v", contents(t, got))
	}
	if _, err := got.Stat("docs"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory without files exists: %v", err)
	}
	if all := tree.Select(func(string, bool) bool { return true }); all.root != tree.root {
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
		"a": {Mode: 0o600, Data: []byte("symlink:b")}, "dir/run": {Mode: 0o744, Data: []byte("#!")},
		"dir/link": {Mode: fs.ModeSymlink, Data: []byte("run")}, "dir/empty": {Mode: fs.ModeDir},
	})
	must(t, err)
	for name, want := range map[string]fs.FileMode{"a": 0o644, "dir/run": 0o755, "dir/link": fs.ModeSymlink | 0o777,
		"dir/empty": fs.ModeDir | 0o755} {
		if info, err := tree.Lstat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	if b, err := tree.ReadFile("a"); err != nil || string(b) != "symlink:b" {
		t.Errorf("%q %v", b, err)
	}
	for _, files := range []map[string]File{
		{"../a": {}}, {"/a": {}}, {".": {}}, {"": {}}, {"a/": {}}, {"../a": {Mode: fs.ModeDir}},
		{".": {Mode: fs.ModeDir}}, {"a": {Mode: fs.ModeDevice, Data: nil}}, {"\xff": {}},
	} {
		if _, err := NewMemory(files); err == nil {
			t.Errorf("%q was accepted", slices.Collect(maps.Keys(files)))
		}
	}
}
