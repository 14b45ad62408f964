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
	// modeSubmodule is the mode of a submodule.
	modeSubmodule = "160000"
	// maxPath is the maximum length, in bytes, of the path of an edited file.
	maxPath = 4096
)

// editRoot applies edits to a root directory, and returns the new one. It reads only directories on the paths of the
// edits.
func (w *writer) editRoot(root plumbing.Hash, edits []Edit) (plumbing.Hash, error) {
	seen := map[string]bool{}
	for _, e := range edits {
		if err := checkPath(e.Path); err != nil {
			return plumbing.ZeroHash, invalidEdit(e.Path, err)
		}
		if seen[e.Path] {
			return plumbing.ZeroHash, invalidEdit(e.Path, errors.New("it has two edits"))
		}
		seen[e.Path] = true
	}
	tree, err := w.edit(root, "", edits)
	if tree.IsZero() && err == nil {
		tree = w.add(plumbing.TreeObject, nil)
	}
	return tree, err
}

func invalidEdit(path string, err error) error {
	return gitFault("cannot edit file '%s'", path).Because(err).
		WithHint("Edit regular files of the repository only").Final()
}

// edit applies edits to a directory, and returns the new one. A zero hash is an empty directory, which git does not
// store.
func (w *writer) edit(tree plumbing.Hash, dir string, edits []Edit) (plumbing.Hash, error) {
	entries, err := w.entries(tree)
	if err != nil {
		return plumbing.ZeroHash, fmt.Errorf("directory '%s': %w", dir, err)
	}
	editsOf := map[string][]Edit{} // by the name in this directory
	for _, e := range edits {
		name, _, _ := strings.Cut(strings.TrimPrefix(e.Path, dir), "/")
		editsOf[name] = append(editsOf[name], e)
	}
	for _, name := range slices.Sorted(maps.Keys(editsOf)) {
		edits := editsOf[name]
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
			err = invalidEdit(path, errors.New("the edits make it both a file and a directory"))
		default:
			after, err = w.editFile(before, edits[file])
		}
		switch {
		case err != nil:
			return plumbing.ZeroHash, err
		case at >= 0:
			entries[at] = after // with a zero hash if it was removed
		default:
			entries = append(entries, after)
		}
	}
	return w.directory(entries), nil
}

func (w *writer) editFile(before entry, e Edit) (entry, error) {
	if before.mode != "" && !strings.HasPrefix(before.mode, "100") {
		return before, invalidEdit(e.Path, errors.New("it is not a regular file"))
	}
	after := entry{mode: cmp.Or(before.mode, modeFile), name: before.name}
	if e.Content != nil {
		after.hash = w.add(plumbing.BlobObject, e.Content)
	}
	return after, nil
}

func (w *writer) editDir(before entry, path string, edits []Edit) (entry, error) {
	if before.mode != "" && !isDirectory(before) {
		return before, invalidEdit(edits[0].Path, fmt.Errorf("'%s' is not a directory", path))
	}
	tree, err := w.edit(before.hash, path+"/", edits)
	return entry{mode: modeDir, name: before.name, hash: tree}, err
}

func isDirectory(e entry) bool { return e.mode == modeDir || e.mode == "040000" }

// entries returns the entries of a directory. A zero hash is an empty directory.
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
		return nil, fmt.Errorf("object %s is not a directory", tree)
	}
	var entries []entry
	for most := MaxEntries(); len(data) > 0; {
		if len(entries) >= most {
			return nil, ErrTooManyEntries
		}
		var e entry
		if e, data, err = cutEntry(data); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// directory adds a directory with the entries that have a hash. It returns zero if there are none.
func (w *writer) directory(entries []entry) plumbing.Hash {
	// git sorts directories as if their names ended with a slash
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

// checkPath returns an error for paths that lead out of a clone, or into its .git directory on any operating system.
func checkPath(path string) error {
	parts := strings.Split(path, "/")
	if len(path) > maxPath || len(parts) > maxDepth {
		return errors.New("the path is too long")
	}
	for _, part := range parts {
		if part == "" || part == "." || part == ".." || strings.ContainsRune(part, 0) {
			return errors.New("the path is not valid")
		}
		if isDotGit(part) {
			return fmt.Errorf("'%s' is reserved by git", part)
		}
	}
	return nil
}

// isDotGit reports whether some file system treats the name as .git: some ignore case, invisible characters,
// or suffixes (NTFS).
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
