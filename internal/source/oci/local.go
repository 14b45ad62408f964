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
	maxLocal = 1 << 30 // bytes of all files together
	maxDepth = 256     // of directories
)

// ReadLocal reads a file, or the files of a directory except those that the rules exclude, into a tree. If resolve is
// set, symlinks are replaced by their targets, which may be outside of the directory; otherwise they stay symlinks.
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

// local is one run of ReadLocal.
type local struct {
	resolve bool
	files   map[string]artifact.File
	left    int64 // bytes until the limit
}

// dir adds the files of a directory.
func (l *local) dir(at, name string, rules ignore.Rules, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s is nested deeper than %d directories; check for a cycle of symlinks", at, maxDepth)
	}
	entries, err := os.ReadDir(at)
	if err != nil {
		return err
	}
	if own, err := os.ReadFile(filepath.Join(at, ignore.File)); err == nil {
		if rules, err = rules.With(string(own)); err != nil {
			return err
		}
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
			if !rules.ExcludesDir(e.Name()) {
				l.files[inside] = artifact.File{Mode: fs.ModeDir} // also if it is empty
			}
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

// file adds a file or a symlink.
func (l *local) file(at, name string, info fs.FileInfo) error {
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(at)
		l.files[name] = artifact.File{Mode: fs.ModeSymlink, Data: []byte(filepath.ToSlash(target))}
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file, directory or symlink", at)
	}
	if l.left -= info.Size(); l.left < 0 {
		return fmt.Errorf("the files exceed %d bytes in total", maxLocal)
	}
	data, err := os.ReadFile(at)
	l.files[name] = artifact.File{Mode: info.Mode(), Data: data}
	return err
}

// WriteLocal writes the files of a tree to a directory, which is created if it does not exist. Nothing is written
// outside of it.
func WriteLocal(dir string, tree *artifact.Tree) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() // files are closed separately
	return tree.Walk(func(name string, e *artifact.Entry) error {
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		if e.Mode.IsDir() {
			return root.MkdirAll(name, 0o755)
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
