package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"
)

// memory is Content in memory. Its IDs are made of the mode and the digest of the content.
type memory struct{ byID map[string][]byte }

func (m *memory) Size(id string) (int64, error) {
	b, err := m.Read(id)
	return int64(len(b)), err
}

func (m *memory) Read(id string) ([]byte, error) {
	b, ok := m.byID[id]
	if !ok {
		return nil, unknown(id)
	}
	return b, nil
}

func unknown(id string) error { return fmt.Errorf("content %s: %w", id, fs.ErrNotExist) }

// File is a file of a tree in memory.
type File struct {
	Mode fs.FileMode // 0644, 0755, or of a symlink or directory
	Data []byte      // content, or the target of a symlink; must not be changed afterwards
}

// NewMemory returns a tree of the files, by path, in memory. Paths must be valid as defined by [fs.ValidPath]. Modes
// are reduced to the modes that an archive supports. Directories need to be given only if they have no files. If a file
// and a directory have the same path, the directory is kept.
func NewMemory(files map[string]File) (*Tree, error) {
	own := make(map[string]file, len(files))
	for name, f := range files {
		if !fs.ValidPath(name) || name == "." {
			return nil, fmt.Errorf("%w: %.100q is not the path of a file", fs.ErrInvalid, name)
		}
		mode := fs.FileMode(0o644)
		switch {
		case f.Mode&fs.ModeSymlink != 0:
			mode = fs.ModeSymlink | 0o777
		case f.Mode.IsDir():
			mode = directoryMode
		case !f.Mode.IsRegular():
			return nil, fmt.Errorf("%w: %.100q is of mode %s", fs.ErrInvalid, name, f.Mode)
		case f.Mode&0o111 != 0:
			mode = 0o755
		}
		own[name] = file{mode, f.Data}
	}
	tree := newMemoryTree(own)
	return tree, tree.Check()
}

// directoryMode is the mode of all directories.
const directoryMode = fs.ModeDir | 0o755

// file is a file with a mode that an archive supports.
type file struct {
	mode fs.FileMode
	data []byte
}

// newMemoryTree returns a tree of files by path. Paths must be valid as defined by [fs.ValidPath].
func newMemoryTree(files map[string]file) *Tree {
	content := &memory{map[string][]byte{}}
	type building struct {
		entries map[string]Entry
		dirs    map[string]*building
	}
	newBuilding := func() *building { return &building{map[string]Entry{}, map[string]*building{}} }
	root := newBuilding()
	for name, f := range files {
		at := root
		parts := strings.Split(name, "/")
		parents := parts[:len(parts)-1]
		if f.mode.IsDir() {
			parents = parts
		}
		for _, p := range parents {
			if at.dirs[p] == nil {
				at.dirs[p] = newBuilding()
			}
			at = at.dirs[p]
		}
		if f.mode.IsDir() {
			continue
		}
		sum := sha256.Sum256(f.data)
		id := fmt.Sprintf("%o:%s", uint32(f.mode), hex.EncodeToString(sum[:]))
		content.byID[id] = f.data
		base := parts[len(parts)-1]
		at.entries[base] = Entry{Name: base, Mode: f.mode, ID: id}
	}
	var finish func(b *building) *Dir
	finish = func(b *building) *Dir {
		var entries []Entry
		for name, e := range b.entries {
			if b.dirs[name] == nil {
				entries = append(entries, e)
			}
		}
		for name, sub := range b.dirs {
			d := finish(sub)
			entries = append(entries, Entry{Name: name, Mode: directoryMode, ID: d.ID, Dir: d})
		}
		return NewDir(entries)
	}
	return NewTree(finish(root), content)
}

// Size returns the total size of the files in bytes.
func (t *Tree) Size() (sum int64) {
	_ = t.Walk(func(_ string, e *Entry) error { // never fails
		n, _ := t.content.Size(e.ID) // 0 if it is not known
		sum += n
		return nil
	})
	return sum
}

// FromMap returns a tree of file contents by path. A content that starts with "symlink:" is a symlink; the rest of it
// is the target. A path that ends in "/" is a directory.
func FromMap(contents map[string]string) *Tree {
	files := map[string]file{}
	for name, c := range contents {
		if dir, ok := strings.CutSuffix(name, "/"); ok {
			files[dir] = file{mode: directoryMode}
			continue
		}
		if target, ok := strings.CutPrefix(c, "symlink:"); ok {
			files[name] = file{fs.ModeSymlink | 0o777, []byte(target)}
			continue
		}
		files[name] = file{0o644, []byte(c)}
	}
	return newMemoryTree(files)
}
