package build

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/sluice-gitops/sluice/internal/build/sandbox"
)

const childArgument = "run-kustomize-for-parent"

func init() { sandbox.Serve(childArgument, serve) }

// maxCopied is the number of bytes that operations 'copy' of a JSON patch may add to an object. Without a limit, each
// copy of a map into itself doubles it.
const maxCopied = 32 << 10

// serve runs kustomize in a child. It returns an error only if the parent cannot be answered.
func serve(p *sandbox.Parent, kind byte, content []byte) error {
	head, rest, err := unpack(content, 2)
	if kind != frameBuild || err != nil {
		return sandbox.ErrProtocol
	}
	source := &remoteSource{parent: p, entries: map[string]*entry{}}
	for len(rest) > 0 {
		var e *entry
		if e, rest, err = unpackEntry(rest); err != nil {
			return sandbox.ErrProtocol
		}
		source.entries[e.full] = e
	}
	resources, err := kustomize(source, head[0], head[1] != "")
	switch {
	case source.broken != nil:
		return source.broken
	case source.limits.exceeded != nil:
		return p.Send(frameError, pack(nil, source.limits.exceeded.Error(), "refused"))
	case err != nil:
		return p.Send(frameError, pack(nil, sandbox.Shorten(err.Error()), ""))
	}
	for _, r := range resources {
		text, problem := marshal(r)
		object := pack(nil, r.GetKind(), r.GetNamespace(), r.GetName(), text, problem)
		if err := p.Send(frameObject, object); err != nil {
			return err
		}
	}
	return p.Send(frameDone)
}

// marshal returns an object as JSON, and why it cannot be written.
func marshal(r *resource.Resource) (text, problem string) {
	b, err := r.MarshalJSON()
	if err != nil {
		return "", sandbox.Shorten(err.Error())
	}
	return string(b), ""
}

func kustomize(source filesys.FileSystem, root string, sorted bool) (resources []*resource.Resource, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	jsonpatch.AccumulatedCopySizeLimit = maxCopied
	options := krusty.MakeDefaultOptions()                // plugins and Helm are off
	options.LoadRestrictions = types.LoadRestrictionsNone // the file system is the restriction
	if sorted {
		// the kustomization sets the order; otherwise kustomize prints a warning
		options.Reorder = krusty.ReorderOptionUnspecified
	}
	built, err := krusty.MakeKustomizer(options).Run(source, root)
	if err != nil {
		return nil, err
	}
	return built.Resources(), nil
}

// remoteSource provides the source of a build to kustomize in a child, read-only. It asks the parent for what it was
// not given before.
type remoteSource struct {
	parent  *sandbox.Parent
	entries map[string]*entry
	limits  limits
	broken  error // the parent cannot be asked
}

var _ filesys.FileSystem = (*remoteSource)(nil)

func (s *remoteSource) entry(full string, read bool) *entry {
	full = path.Clean(full)
	e := s.entries[full]
	if e != nil && (e.kind != kindFile || read == e.read) {
		return e
	}
	e, err := s.ask(full, read)
	if err != nil {
		s.broken = err
		return &entry{kind: kindAbsent, problem: err.Error()}
	}
	if s.entries[full] == nil || read {
		s.entries[full] = e
	}
	return e
}

func (s *remoteSource) ask(full string, read bool) (*entry, error) {
	want := ""
	if read {
		want = "read"
	}
	if err := s.parent.Send(frameQuery, pack(nil, full, want)); err != nil {
		return nil, err
	}
	content, err := s.parent.Next(frameAnswer)
	if err != nil {
		return nil, err
	}
	e, _, err := unpackEntry(content)
	return e, err
}

// ReadFile implements filesys.FileSystem.
func (s *remoteSource) ReadFile(full string) ([]byte, error) {
	e := s.entry(full, true)
	switch {
	case e.problem != "":
		return nil, errors.New(e.problem)
	case e.kind != kindFile: // kustomize tries a base as a file first
		return nil, &fs.PathError{Op: "read", Path: full, Err: fs.ErrNotExist}
	}
	return []byte(e.content), s.limits.take(show(full), int64(len(e.content)))
}

// known returns what is known of a path, whether its content is or not.
func (s *remoteSource) known(full string) *entry {
	if e := s.entries[path.Clean(full)]; e != nil {
		return e
	}
	return s.entry(full, false)
}

// IsDir implements filesys.FileSystem.
func (s *remoteSource) IsDir(full string) bool { return s.known(full).kind == kindDir }

// Exists implements filesys.FileSystem.
func (s *remoteSource) Exists(full string) bool { return s.known(full).kind != kindAbsent }

// CleanedAbs implements filesys.FileSystem. Symlinks are resolved: kustomize finds cycles by comparing directories.
func (s *remoteSource) CleanedAbs(full string) (filesys.ConfirmedDir, string, error) {
	switch e := s.entry(full, false); {
	case e.problem != "":
		return "", "", errors.New(e.problem)
	case e.kind == kindAbsent:
		return "", "", &fs.PathError{Op: "find", Path: full, Err: fs.ErrNotExist}
	case e.kind == kindDir:
		return filesys.ConfirmedDir(e.real), "", nil
	default:
		return filesys.ConfirmedDir(path.Dir(e.real)), path.Base(e.real), nil
	}
}

func unsupported(op, full string) error {
	return &fs.PathError{Op: op, Path: full, Err: errors.ErrUnsupported}
}

// ReadDir implements filesys.FileSystem; no build needs it.
func (s *remoteSource) ReadDir(full string) ([]string, error) { return nil, unsupported("list", full) }

// Walk implements filesys.FileSystem; no build needs it.
func (s *remoteSource) Walk(full string, _ filepath.WalkFunc) error { return unsupported("walk", full) }

// Glob implements filesys.FileSystem; no build needs it.
func (s *remoteSource) Glob(pattern string) ([]string, error) {
	return nil, unsupported("glob", pattern)
}

// Open implements filesys.FileSystem; kustomize reads whole files only.
func (s *remoteSource) Open(full string) (filesys.File, error) { return nil, unsupported("open", full) }

// Create implements filesys.FileSystem; a source is never written.
func (s *remoteSource) Create(full string) (filesys.File, error) {
	return nil, unsupported("create", full)
}

// Mkdir implements filesys.FileSystem; a source is never written.
func (s *remoteSource) Mkdir(full string) error { return unsupported("mkdir", full) }

// MkdirAll implements filesys.FileSystem; a source is never written.
func (s *remoteSource) MkdirAll(full string) error { return unsupported("mkdir", full) }

// RemoveAll implements filesys.FileSystem; a source is never written.
func (s *remoteSource) RemoveAll(full string) error { return unsupported("remove", full) }

// WriteFile implements filesys.FileSystem; a source is never written.
func (s *remoteSource) WriteFile(full string, _ []byte) error { return unsupported("write", full) }
