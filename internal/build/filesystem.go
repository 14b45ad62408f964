package build

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// Where the source and our own kustomization stand for kustomize. A path that reaches out of the source is not below mount.
const (
	mount   = "/source"
	overlay = "/overlay"
)

// filesystem shows kustomize a tree, read-only, and traces what it looks at.
type filesystem struct {
	tree      *artifact.Tree
	trace     *Trace
	generated map[string][]byte // files of our own, by full path
	schema    bool              // whether a kustomization brings its own OpenAPI schema
	refused   error             // the first refusal, in our words
	files     []string          // manifests that were read, for finding the one with a syntax error
}

var _ filesys.FileSystem = (*filesystem)(nil)

// inside returns the name in the tree of a full path.
func inside(full string) (string, error) {
	clean := path.Clean("/" + full)
	if clean == mount {
		return ".", nil
	}
	if rest, ok := strings.CutPrefix(clean, mount+"/"); ok {
		return rest, nil
	}
	return "", errOutside
}

var errOutside = errors.New("reaches out of the source")

// ReadFile implements filesys.FileSystem.
func (f *filesystem) ReadFile(full string) ([]byte, error) {
	if b, ok := f.generated[full]; ok {
		return b, nil
	}
	name, err := inside(full)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: full, Err: fs.ErrNotExist}
	}
	if f.trace.kind(f.tree, name) == kindDir {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrNotExist} // kustomize tries a base as a file first
	}
	f.trace.content(f.tree, name)
	b, err := f.tree.ReadFile(name)
	if errors.Is(err, fs.ErrInvalid) {
		return nil, f.refuse(refusal("%s is a symlink that leads out of the source, or no file", name).
			WithHint("Keep everything that a build reads inside the repository"))
	}
	if err != nil {
		return nil, err
	}
	if isKustomization(path.Base(name)) {
		if err := f.check(name, b); err != nil {
			return nil, f.refuse(err)
		}
	} else if isManifest(name) {
		f.files = append(f.files, name)
	}
	return b, nil
}

func (f *filesystem) refuse(err error) error {
	if f.refused == nil {
		f.refused = err
	}
	return err
}

// IsDir implements filesys.FileSystem.
func (f *filesystem) IsDir(full string) bool {
	if full == overlay {
		return f.generated[overlay+"/"+konfig.DefaultKustomizationFileName()] != nil
	}
	name, err := inside(full)
	return err == nil && f.trace.kind(f.tree, name) == kindDir
}

// Exists implements filesys.FileSystem.
func (f *filesystem) Exists(full string) bool {
	if _, ok := f.generated[full]; ok {
		return true
	}
	name, err := inside(full)
	return err == nil && f.trace.kind(f.tree, name) != kindAbsent
}

// CleanedAbs implements filesys.FileSystem.
func (f *filesystem) CleanedAbs(full string) (filesys.ConfirmedDir, string, error) {
	clean := path.Clean("/" + full)
	if clean == overlay || f.IsDir(clean) {
		return filesys.ConfirmedDir(clean), "", nil
	}
	if !f.Exists(clean) {
		return "", "", &fs.PathError{Op: "find", Path: strings.TrimPrefix(clean, mount+"/"), Err: fs.ErrNotExist}
	}
	return filesys.ConfirmedDir(path.Dir(clean)), path.Base(clean), nil
}

// ReadDir implements filesys.FileSystem.
func (f *filesystem) ReadDir(full string) ([]string, error) {
	name, err := inside(full)
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: full, Err: fs.ErrNotExist}
	}
	return f.trace.listing(f.tree, name)
}

// Walk implements filesys.FileSystem.
func (f *filesystem) Walk(full string, visit filepath.WalkFunc) error {
	name, err := inside(full)
	if err != nil {
		return err
	}
	return fs.WalkDir(f.tree, name, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, err := f.trace.listing(f.tree, p); err != nil {
				return err
			}
		}
		info, err := d.Info()
		return visit(path.Join(mount, p), info, err)
	})
}

// Glob implements filesys.FileSystem.
func (f *filesystem) Glob(pattern string) ([]string, error) {
	name, err := inside(pattern)
	if err != nil {
		return nil, nil
	}
	var found []string
	err = f.Walk(mount, func(p string, _ os.FileInfo, err error) error {
		if ok, matchErr := path.Match(path.Join(mount, name), p); matchErr != nil {
			return matchErr
		} else if ok {
			found = append(found, p)
		}
		return err
	})
	slices.Sort(found)
	return found, err
}

// Open implements filesys.FileSystem. Kustomize reads whole files only.
func (f *filesystem) Open(full string) (filesys.File, error) {
	return nil, &fs.PathError{Op: "open", Path: full, Err: errReadOnly}
}

var errReadOnly = errors.New("a source is read as a whole and never written")

func readOnly(full string) error { return &fs.PathError{Op: "write", Path: full, Err: errReadOnly} }

// Create implements filesys.FileSystem; a source is never written.
func (f *filesystem) Create(full string) (filesys.File, error) { return nil, readOnly(full) }

// Mkdir implements filesys.FileSystem; a source is never written.
func (f *filesystem) Mkdir(full string) error { return readOnly(full) }

// MkdirAll implements filesys.FileSystem; a source is never written.
func (f *filesystem) MkdirAll(full string) error { return readOnly(full) }

// RemoveAll implements filesys.FileSystem; a source is never written.
func (f *filesystem) RemoveAll(full string) error { return readOnly(full) }

// WriteFile implements filesys.FileSystem; a source is never written.
func (f *filesystem) WriteFile(full string, _ []byte) error { return readOnly(full) }

func isKustomization(base string) bool {
	return slices.Contains(konfig.RecognizedKustomizationFileNames(), base)
}

func isManifest(name string) bool {
	ext := path.Ext(name)
	return ext == ".yaml" || ext == ".yml"
}

// show gives a full path as people know it.
func show(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(text, mount+"/", ""), "'"+mount+"'", "'.'"), overlay, "the settings of the Kustomization")
}
