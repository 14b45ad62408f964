package hub

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// partialSuffix is that of files which are not written completely.
const partialSuffix = ".partial"

// Directory is a directory as a backend, for a hub of one replica. The directory exists.
type Directory struct{ Root *os.Root }

// OpenDirectory creates a directory if it does not exist.
func OpenDirectory(name string) (artifact.Backend, error) {
	if err := os.MkdirAll(name, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return &Directory{Root: root}, nil
}

// Put implements [artifact.Backend].
func (d *Directory) Put(ctx context.Context, name string, content io.Reader, size int64) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := d.Root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	partial := name + "." + rand.Text() + partialSuffix
	f, err := d.Root.OpenFile(partial, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, content)
	if err == nil && n != size {
		err = fmt.Errorf("%d of %d bytes", n, size)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, d.Root.Remove(partial))
	}
	return d.Root.Rename(partial, name)
}

// Get implements [artifact.Backend].
func (d *Directory) Get(ctx context.Context, name string) (io.ReadCloser, artifact.BackendFile, error) {
	if err := ctx.Err(); err != nil {
		return nil, artifact.BackendFile{}, err
	}
	f, err := d.Root.Open(name)
	if err != nil {
		return nil, artifact.BackendFile{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, artifact.BackendFile{}, errors.Join(err, f.Close())
	}
	return f, describe(name, info), nil
}

func describe(name string, info fs.FileInfo) artifact.BackendFile {
	return artifact.BackendFile{Name: name, Size: info.Size(), Modified: info.ModTime().Truncate(time.Second)}
}

// Delete implements [artifact.Backend].
func (d *Directory) Delete(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := d.Root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// List implements [artifact.Backend].
func (d *Directory) List(ctx context.Context, prefix string) ([]artifact.BackendFile, error) {
	var files []artifact.BackendFile
	err := fs.WalkDir(d.Root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil || entry.IsDir() || !strings.HasPrefix(name, prefix) ||
			strings.HasSuffix(name, partialSuffix) {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			files = append(files, describe(name, info))
		}
		return err
	})
	return files, err
}
