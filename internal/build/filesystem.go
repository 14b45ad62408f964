package build

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build/remotebase"
	"github.com/sluice-gitops/sluice/internal/build/sandbox"
	"github.com/sluice-gitops/sluice/internal/build/substitute"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
)

// mount is the path of the source in the file system for kustomize. A path outside of the source is not below it.
const mount = "/source"

// filesystem provides a tree to kustomize and records what it reads. It is used for one build.
type filesystem struct {
	ctx          context.Context // of the build
	tree         *artifact.Tree
	trace        *Trace
	generated    map[string][]byte               // generated files, by full path
	parsed       map[string]*types.Kustomization // that were read, by full path
	pool         *sandbox.Pool                   // of children that run kustomize
	schema       bool                            // whether a kustomization has its own OpenAPI schema
	empty        bool                            // whether the kustomization declares an empty list of resources
	sorted       bool                            // whether the kustomization sets the order of its objects
	refused      error                           // the first refusal, before kustomize wraps it
	files        nameSet                         // that were read and may be manifests, to find the cause of a failure
	resources    nameSet                         // files that must be manifests
	plugins      map[string]bool                 // directories of plugin configurations that were checked
	limits       limits
	weight       yamlsize.Weight // of what was read
	extent       extent
	hasTimedOut  bool  // kustomize took too long
	output       int64 // bytes of the result as JSON
	outputValues int
	lease        *guard.Lease
	most         int64                    // bytes of memory that were needed at once so far
	secrets      secrets                  // state of the decryption
	remote       remotes                  // state of the fetches
	mountedBases map[remotebase.Base]bool // repositories in the tree, by base without a path
	root         string                   // the directory of the build
	origins      origins
	track        bool // whether kustomize records the origin of objects
	request      Request
	built        []*unstructured.Unstructured
	warnings     []string
	annotate     bool // whether the objects keep the annotation that names their origin

	// retyped are the fields that variables changed from text to another type.
	retyped map[*unstructured.Unstructured][]substitute.Note
}

// nameSet holds names in the order in which they were added.
type nameSet struct {
	names []string
	has   map[string]bool
}

func (s *nameSet) add(name string) {
	if s.has[name] {
		return
	}
	if s.has == nil {
		s.has = map[string]bool{}
	}
	s.names, s.has[name] = append(s.names, name), true
}

func newFilesystem(ctx context.Context, tree *artifact.Tree) *filesystem {
	return &filesystem{
		ctx: ctx, tree: tree, trace: newTrace(tree),
		generated: map[string][]byte{}, plugins: map[string]bool{}, parsed: map[string]*types.Kustomization{},
		pool: children(),
	}
}

// inside returns the name in the tree of a full path.
func inside(full string) (string, error) {
	clean := path.Clean("/" + full)
	if clean == mount {
		return ".", nil
	}
	if rest, ok := strings.CutPrefix(clean, mount+"/"); ok {
		return rest, nil
	}
	return "", &fs.PathError{Op: "find", Path: full, Err: errOutside}
}

var errOutside = errors.New("reaches out of the source")

// ReadFile returns the content of a file, decrypted. It returns a kustomization file only if [filesystem.check] accepts
// it.
func (f *filesystem) ReadFile(full string) ([]byte, error) {
	if b, ok := f.generated[full]; ok {
		return b, f.ctx.Err()
	}
	name, err := inside(full)
	if err != nil {
		return nil, err
	}
	b, err := f.read(name)
	if err != nil {
		return nil, err
	}
	if !IsKustomization(path.Base(name)) || f.isResource(name, b) {
		if err = f.weighEncrypted(name, b); err == nil {
			b, err = f.decrypt(name, b)
		}
		if err == nil {
			err = f.weighText(name, b)
		}
		if err != nil {
			return nil, f.refuse(err)
		}
		if isManifest(name) {
			f.files.add(name)
		}
		return b, nil
	}
	var k *types.Kustomization
	if err = f.weighParsed(name, b); err == nil {
		k, err = parseKustomization(name, b)
	}
	brought := false
	if err == nil {
		brought, err = f.bring(name, k)
	}
	if err == nil {
		err = f.check(name, k)
	}
	if err == nil && brought {
		b, err = yaml.Marshal(k)
	}
	if err != nil {
		return nil, f.refuse(err)
	}
	f.parsed[full] = k
	return b, nil
}

// read reads a file of the tree.
func (f *filesystem) read(name string) ([]byte, error) {
	if err := f.ctx.Err(); err != nil {
		return nil, err
	}
	if f.trace.kind(f.tree, name) == kindDir {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrNotExist} // kustomize tries a base as a file first
	}
	f.trace.content(f.tree, name)
	if info, err := f.tree.Stat(name); err == nil { // ReadFile below reports the error
		if err := f.take(name, info.Size()); err != nil {
			return nil, err
		}
	}
	b, err := f.tree.ReadFile(name)
	if errors.Is(err, fs.ErrInvalid) {
		return nil, f.refuse(leadsOut(name))
	}
	return b, err
}

func parseKustomization(name string, content []byte) (*types.Kustomization, error) {
	k := &types.Kustomization{}
	if err := k.Unmarshal(content); err != nil {
		var is types.TypeMeta
		if yaml.Unmarshal(content, &is) == nil {
			if err := checkType(name, is); err != nil {
				return nil, err // which is why it has other fields
			}
		}
		return nil, refusal("%s cannot be read", name).Because(err)
	}
	return k, nil
}

// parseEntry parses the kustomization file where a build starts. It is written again with the settings of the request,
// so kustomize never reads it: as documented, unknown fields are ignored here, and numbers are taken for text. As Flux
// does, fields of the type that are absent are those of a Kustomization, also beside kind: Component.
func parseEntry(name string, content []byte) (*types.Kustomization, error) {
	k := &types.Kustomization{TypeMeta: types.TypeMeta{APIVersion: types.KustomizationVersion,
		Kind: types.KustomizationKind}}
	if err := yaml.Unmarshal(content, k); err != nil {
		return nil, refusal("%s cannot be read", name).Because(err)
	}
	return k, nil
}

// refuse records the first refusal: kustomize tries several ways to read a resource, and reports only the last error.
func (f *filesystem) refuse(err error) error {
	if f.refused == nil {
		f.refused = err
	}
	return err
}

// IsDir reports whether a full path leads to a directory.
func (f *filesystem) IsDir(full string) bool {
	name, err := inside(full)
	return err == nil && f.trace.kind(f.tree, name) == kindDir
}

// Exists reports whether a full path leads to a file or a directory.
func (f *filesystem) Exists(full string) bool {
	if _, ok := f.generated[full]; ok {
		return true
	}
	name, err := inside(full)
	return err == nil && f.trace.kind(f.tree, name) != kindAbsent
}

// IsKustomization reports whether a file of this name, without its directory, is one that kustomize builds.
func IsKustomization(base string) bool {
	return slices.Contains(konfig.RecognizedKustomizationFileNames(), base)
}

func isManifest(name string) bool {
	ext := path.Ext(name)
	return ext == ".yaml" || ext == ".yml"
}

// show replaces full paths in a text by paths relative to the source.
func show(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, mount+"/", ""), "'"+mount+"'", "'.'")
}
