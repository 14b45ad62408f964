package git

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/go-git/go-git/v5/plumbing"
)

const (
	modeFile = "100644"
	modeDir  = "40000"
	// modeSubmodule is that of a commit of another repository.
	modeSubmodule = "160000"
	// maxPath bounds, in bytes, the path of a file that is edited.
	maxPath = 4096
)

// editTop makes the edits in the top directory of a commit, and returns the one that comes of it. Only
// directories on the way are read.
func (w *writer) editTop(root plumbing.Hash, edits []Edit) (plumbing.Hash, error) {
	seen := map[string]bool{}
	for _, e := range edits {
		if err := checkPath(e.Path); err != nil {
			return plumbing.ZeroHash, badEdit(e.Path, err)
		}
		if seen[e.Path] {
			return plumbing.ZeroHash, badEdit(e.Path, errors.New("it is edited twice"))
		}
		seen[e.Path] = true
	}
	tree, err := w.edit(root, "", edits)
	if tree.IsZero() && err == nil {
		tree = w.add(plumbing.TreeObject, nil)
	}
	return tree, err
}

func badEdit(path string, err error) error {
	return gitFault("the file '%s' cannot be edited", path).Because(err).
		WithHint("Edit regular files of the repository only").Final()
}

// edit makes edits in a directory, which is zero for a new one. What is left empty is zero: git has no empty
// directories.
func (w *writer) edit(tree plumbing.Hash, dir string, edits []Edit) (plumbing.Hash, error) {
	entries, err := w.entries(tree)
	if err != nil {
		return plumbing.ZeroHash, fmt.Errorf("directory '%s': %w", dir, err)
	}
	below := map[string][]Edit{} // by the name in this directory
	for _, e := range edits {
		name, _, _ := strings.Cut(strings.TrimPrefix(e.Path, dir), "/")
		below[name] = append(below[name], e)
	}
	for _, name := range slices.Sorted(maps.Keys(below)) {
		edits := below[name]
		at := slices.IndexFunc(entries, func(e entry) bool { return e.name == name })
		before := entry{name: name}
		if at >= 0 {
			before = entries[at]
		}
		var after entry
		path := dir + name
		switch file := slices.IndexFunc(edits, func(e Edit) bool { return e.Path == path }); {
		case file < 0:
			after, err = w.editDir(before, path, edits)
		case len(edits) > 1:
			err = badEdit(path, errors.New("it is to be a file and a directory at once"))
		default:
			after, err = w.editFile(before, edits[file])
		}
		switch {
		case err != nil:
			return plumbing.ZeroHash, err
		case at >= 0:
			entries[at] = after // with a zero hash if it is gone
		default:
			entries = append(entries, after)
		}
	}
	return w.directory(entries), nil
}

func (w *writer) editFile(before entry, e Edit) (entry, error) {
	if before.mode != "" && !strings.HasPrefix(before.mode, "100") {
		return before, badEdit(e.Path, errors.New("it is no regular file"))
	}
	after := entry{mode: cmp.Or(before.mode, modeFile), name: before.name}
	if e.Content != nil {
		after.hash = w.add(plumbing.BlobObject, e.Content)
	}
	return after, nil
}

func (w *writer) editDir(before entry, path string, edits []Edit) (entry, error) {
	if before.mode != "" && !isDirectory(before) {
		return before, badEdit(edits[0].Path, fmt.Errorf("'%s' is no directory", path))
	}
	tree, err := w.edit(before.hash, path+"/", edits)
	return entry{mode: modeDir, name: before.name, hash: tree}, err
}

func isDirectory(e entry) bool { return e.mode == modeDir || e.mode == "040000" }

// entries reads a directory that is kept; a zero hash is that of an empty one.
func (w *writer) entries(tree plumbing.Hash) ([]entry, error) {
	if tree.IsZero() {
		return nil, nil
	}
	return w.from.entries(tree)
}

func (r *repository) entries(tree plumbing.Hash) ([]entry, error) {
	kind, data, err := r.objects.Read(tree)
	if err != nil {
		return nil, err
	}
	if kind != plumbing.TreeObject {
		return nil, fmt.Errorf("object %s is no directory", tree)
	}
	var entries []entry
	for len(data) > 0 {
		var e entry
		if e, data, err = cutEntry(data); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// directory writes one; entries without a hash are left out, and an empty one is zero.
func (w *writer) directory(entries []entry) plumbing.Hash {
	// git sorts directories as if their names ended with a slash.
	key := func(e entry) string {
		if isDirectory(e) {
			return e.name + "/"
		}
		return e.name
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return strings.Compare(key(a), key(b)) })
	var data []byte
	for _, e := range entries {
		if e.hash.IsZero() {
			continue
		}
		data = append(append(data, e.mode+" "+e.name+"\x00"...), e.hash[:]...)
	}
	if len(data) == 0 {
		return plumbing.ZeroHash
	}
	return w.add(plumbing.TreeObject, data)
}

// checkPath refuses what no clone may hold: names that lead out of it, or into git's own directory on any system.
func checkPath(path string) error {
	parts := strings.Split(path, "/")
	if len(path) > maxPath || len(parts) > maxDepth {
		return errors.New("its path is too long")
	}
	for _, part := range parts {
		if part == "" || part == "." || part == ".." || strings.ContainsRune(part, 0) {
			return errors.New("it is no path of a file in the repository")
		}
		if isDotGit(part) {
			return fmt.Errorf("'%s' is git's own", part)
		}
	}
	return nil
}

// isDotGit tells whether a name is .git to some file system: those that ignore case, characters that show
// nothing, and what follows on NTFS.
func isDotGit(name string) bool {
	name = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, name)
	name, _, _ = strings.Cut(name, ":")
	name = strings.TrimRight(name, " .")
	return strings.EqualFold(name, ".git") || strings.EqualFold(name, "git~1")
}
