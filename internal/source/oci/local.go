package oci

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/source/ignore"
)

const (
	maxLocal = 1 << 30 // bytes, as of an archive that is read
	maxDepth = 256     // of directories
)

// ReadLocal reads a file or the files of a directory into a tree, without what the rules leave out. Symlinks
// stay symlinks unless resolve is set; then what they lead to takes their place, wherever it is.
func ReadLocal(name string, rules ignore.Rules, resolve bool) (*artifact.Tree, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	l := &local{resolve: resolve, files: map[string]artifact.File{}, left: maxLocal}
	if info.IsDir() {
		err = l.dir(name, "", rules, 0)
	} else {
		err = l.file(name, filepath.Base(name), info)
	}
	if err != nil {
		return nil, err
	}
	return artifact.NewMemory(l.files)
}

type local struct {
	resolve bool
	files   map[string]artifact.File
	left    int64
}

func (l *local) dir(at, name string, rules ignore.Rules, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s is more than %d directories deep; do symlinks lead in a circle?", at, maxDepth)
	}
	entries, err := os.ReadDir(at)
	if err != nil {
		return err
	}
	if own, err := os.ReadFile(filepath.Join(at, ignore.File)); err == nil {
		rules = rules.With(string(own))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		full, inside := filepath.Join(at, e.Name()), path.Join(name, e.Name())
		info, err := l.stat(full)
		switch {
		case err != nil:
			return err
		case info.IsDir() && rules.Prunes(e.Name()), !info.IsDir() && rules.Excludes(e.Name()):
			continue
		case info.IsDir():
			err = l.dir(full, inside, rules.Enter(e.Name()), depth+1)
		default:
			err = l.file(full, inside, info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *local) stat(name string) (fs.FileInfo, error) {
	if l.resolve {
		return os.Stat(name)
	}
	return os.Lstat(name)
}

func (l *local) file(at, name string, info fs.FileInfo) error {
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(at)
		l.files[name] = artifact.File{Mode: fs.ModeSymlink, Data: []byte(filepath.ToSlash(target))}
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is neither a file, a directory nor a symlink", at)
	}
	if l.left -= info.Size(); l.left < 0 {
		return fmt.Errorf("the files have more than %d bytes together", maxLocal)
	}
	data, err := os.ReadFile(at)
	l.files[name] = artifact.File{Mode: info.Mode(), Data: data}
	return err
}

// WriteLocal writes the files of a tree into a directory, which is made if need be. Nothing is written outside of it.
func WriteLocal(dir string, tree *artifact.Tree) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() // nothing is written through it
	return tree.Walk(func(name string, e *artifact.Entry) error {
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		if e.Mode&fs.ModeSymlink != 0 {
			target, err := tree.ReadLink(name)
			if err != nil {
				return err
			}
			return errors.Join(root.RemoveAll(name), root.Symlink(target, name))
		}
		data, err := tree.ReadFile(name)
		if err != nil {
			return err
		}
		return errors.Join(root.RemoveAll(name), root.WriteFile(name, data, e.Mode.Perm()))
	})
}
