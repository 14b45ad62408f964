package artifact

import (
	"bytes"
	"io/fs"
	"maps"
	"slices"
	"testing"
)

func digestOf(t *testing.T, d *Digester, tree *Tree) string {
	t.Helper()
	digest, err := d.Digest(tree)
	must(t, err)
	return digest
}

func TestDigestIsOfWhatAnArchiveHolds(t *testing.T) {
	files := manyFiles(100, 1)
	files["in"], files["out"], files["links/out"] = "symlink:dir0", "symlink:../x", "symlink:/etc"
	tree := FromMap(files)
	b, _ := archiveOf(t, tree, nil)
	unpacked, err := ReadArchive(bytes.NewReader(b))
	must(t, err)
	want := digestOf(t, &Digester{}, tree)
	if got := digestOf(t, &Digester{}, unpacked); got != want {
		t.Errorf("unpacked: %s, want %s", got, want)
	}
	renamed := NewTree(tree.root, tree.content)
	renamed.root = withOtherIDs(tree.root)
	renamed.content = prefixed{tree.content}
	if got := digestOf(t, &Digester{}, renamed); got != want {
		t.Errorf("of other IDs: %s, want %s", got, want)
	}
	seen := map[string]string{want: "itself"}
	for what, change := range map[string]func(map[string]string){
		"a content": func(m map[string]string) { m["new"] = "a" },
		"a name":    func(m map[string]string) { m["new2"] = "a" },
		"a link":    func(m map[string]string) { m["new"] = "symlink:a" },
		"a file":    func(m map[string]string) { delete(m, "in") },
	} {
		other := maps.Clone(files)
		change(other)
		digest := digestOf(t, &Digester{}, FromMap(other))
		if as, ok := seen[digest]; ok {
			t.Errorf("%s has the digest of %s", what, as)
		}
		seen[digest] = what
	}
	modes := func(mode fs.FileMode) string {
		return digestOf(t, &Digester{}, newMemoryTree(map[string]file{"a": {mode, nil}}))
	}
	if modes(0o644) == modes(0o755) {
		t.Error("modes do not count")
	}
}

// withOtherIDs gives the same files other IDs, as another kind of source does.
func withOtherIDs(d *Dir) *Dir {
	var entries []Entry
	for _, e := range d.Entries {
		if e.Dir != nil {
			e.Dir = withOtherIDs(e.Dir)
			e.ID = e.Dir.ID
		} else {
			e.ID = "other " + e.ID
		}
		entries = append(entries, e)
	}
	return NewDir(entries)
}

type prefixed struct{ Content }

func (p prefixed) Read(id string) ([]byte, error) { return p.Content.Read(id[len("other "):]) }

func TestDigestReadsWhatIsNew(t *testing.T) {
	files := manyFiles(1000, 1)
	d := &Digester{}
	first := digestOf(t, d, FromMap(files))
	d.Next()
	changed := maps.Clone(files)
	changed[slices.Sorted(maps.Keys(files))[500]] = "changed"
	tree := FromMap(changed)
	reads := &countingContent{Content: tree.content}
	tree.content = reads
	if digestOf(t, d, tree) == first {
		t.Error("a change does not count")
	}
	if reads.n == 0 || reads.n > 60 { // about 1000/35 in the directory of the one that changed
		t.Errorf("%d contents were read", reads.n)
	}
	d.Next()
	d.Next()
	d.Next()
	if len(d.before) != 0 {
		t.Error("what is gone is remembered")
	}
}
