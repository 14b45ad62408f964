package artifact

import (
	"testing"
)

func TestTreesWithoutLinks(t *testing.T) {
	plain := FromMap(map[string]string{"a": "1", "d/b": "2"})
	if plain.WithoutLinks() != plain {
		t.Error("a tree without symlinks was copied")
	}
	linked := FromMap(map[string]string{"a": "1", "d/b": "2", "d/l": "symlink:b", "out": "symlink:/etc/passwd"})
	got := linked.WithoutLinks()
	if got.Root().ID != plain.Root().ID {
		t.Errorf("got %v", contents(t, got))
	}
	if _, err := FromMap(map[string]string{"d/l": "symlink:x"}).WithoutLinks().ReadDir("d"); err != nil {
		t.Errorf("a directory that had only symlinks is gone: %v", err)
	}
}

// TestStoresLeaveLinksOut has a store that leaves symlinks out, and one that keeps them.
func TestStoresLeaveLinksOut(t *testing.T) {
	tree := FromMap(map[string]string{"a": "1", "l": "symlink:a"})
	for _, noLinks := range []bool{false, true} {
		s := openStore(t, t.TempDir(), newClock())
		if s.noLinks = noLinks; noLinks {
			WithoutLinks()(s)
		}
		a := put(t, s, tree, "v1", nil)
		for what, read := range map[string]func() (*Tree, error){
			"tree":    func() (*Tree, error) { return s.Tree(webapp, *a) },
			"fetched": func() (*Tree, error) { return (&Fetcher{Store: s}).Fetch(t.Context(), webapp, *a) },
			"archive": func() (*Tree, error) {
				f, err := s.Open(*a)
				if err != nil {
					return nil, err
				}
				defer f.Close()
				return ReadArchive(t.Context(), f)
			},
		} {
			got, err := read()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := got.Lstat("l"); (err != nil) != noLinks {
				t.Errorf("%s, without symlinks %v: %v", what, noLinks, err)
			}
		}
	}
}

func TestNamesThatDifferInCaseAreAccepted(t *testing.T) {
	s := openStore(t, t.TempDir(), newClock())
	for _, c := range []struct {
		files map[string]string
		want  string
	}{
		{map[string]string{"README": "1", "readme": "2"}, `the names "readme" and "README" differ only in case`},
		{map[string]string{"d/A/x": "1", "d/a/x": "2"}, `the names "a" and "A" differ only in case`},
		{map[string]string{"d/Ab": "1", "d/aB": "2"}, `the names "Ab" and "aB" differ only in case`},
		{map[string]string{"a/b": "1", "c/B": "2"}, ""},
	} {
		tree := FromMap(c.files)
		a := put(t, s, tree, "v1", nil)
		f, err := s.Open(*a)
		if err != nil {
			t.Fatal(err)
		}
		read, err := ReadArchive(t.Context(), f)
		f.Close()
		if err != nil || len(contents(t, read)) != len(c.files) || tree.CaseClash() != c.want {
			t.Errorf("%v: %q, %v", c.files, tree.CaseClash(), err)
		}
	}
}
