package artifact

import (
	"slices"
	"testing"
)

// otherStore returns a tree with the same files, whose IDs are those of another store.
func otherStore(t *Tree) *Tree {
	var rename func(d *Dir) *Dir
	rename = func(d *Dir) *Dir {
		var entries []Entry
		for _, e := range d.Entries {
			if e.Dir != nil {
				e.Dir = rename(e.Dir)
				e.ID = e.Dir.ID
			} else {
				e.ID = "other " + e.ID
			}
			entries = append(entries, e)
		}
		return NewDir(entries)
	}
	return NewTree(rename(t.root), renamed{t.content})
}

type renamed struct{ Content }

func (r renamed) Size(id string) (int64, error)  { return r.Content.Size(id[len("other "):]) }
func (r renamed) Read(id string) ([]byte, error) { return r.Content.Read(id[len("other "):]) }

func TestChangedFiles(t *testing.T) {
	before := map[string]string{"a.yaml": "a", "dir/b.yaml": "b", "dir/sub/c": "c", "link": "symlink:dir"}
	for name, tc := range map[string]struct {
		after map[string]string
		want  []string
	}{
		"nothing": {after: before},
		"content": {after: map[string]string{"a.yaml": "x", "dir/b.yaml": "b", "dir/sub/c": "c", "link": "symlink:dir"},
			want: []string{"a.yaml"}},
		"same size": {after: map[string]string{"a.yaml": "a", "dir/b.yaml": "x", "dir/sub/c": "y",
			"link": "symlink:dir"},
			want: []string{"dir/b.yaml", "dir/sub/c"}},
		"new and removed": {after: map[string]string{"a.yaml": "a", "dir/b.yaml": "b", "link": "symlink:dir",
			"new/x": "x"},
			want: []string{"dir/sub/c", "new/x"}},
		"target of a link": {after: map[string]string{"a.yaml": "a", "dir/b.yaml": "b", "dir/sub/c": "c",
			"link": "symlink:dir/sub"}, want: []string{"link"}},
		"file becomes a directory": {after: map[string]string{"a.yaml/x": "a", "dir/b.yaml": "b", "dir/sub/c": "c",
			"link": "symlink:dir"}, want: []string{"a.yaml", "a.yaml/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			for store, old := range map[string]*Tree{"one store": FromMap(before),
				"another store": otherStore(FromMap(before))} {
				got, err := ChangedFiles(old, FromMap(tc.after))
				if err != nil || !slices.Equal(got, tc.want) {
					t.Errorf("%s: got %q, %v, want %q", store, got, err, tc.want)
				}
			}
		})
	}
	got, err := ChangedFiles(nil, FromMap(before))
	if want := []string{"a.yaml", "dir/b.yaml", "dir/sub/c", "link"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("new: got %q, %v, want %q", got, err, want)
	}
}
