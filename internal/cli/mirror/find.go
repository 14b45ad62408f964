package mirror

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/kustomization/spec"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
)

const (
	maxFile  = 8 << 20 // bytes of a file with manifests
	maxItems = 20_000  // of a repository
)

// Found is what a repository refers to.
type Found struct {
	Items   []Item
	Changes []Change // objects whose URLs a mirror replaces
}

// AddImages adds container images.
func (f *Found) AddImages(images []string) error {
	for _, image := range images {
		item, err := ParseImage(image)
		if err != nil {
			return fmt.Errorf("--image: %w", err)
		}
		f.Items = append(f.Items, item)
	}
	f.Items = merge(f.Items)
	return nil
}

// finder collects references.
type finder struct {
	tree    *artifact.Tree
	warn    func(message string)
	items   []Item
	changes map[string]Change
	charts  map[string]helmRepository // by NAMESPACE/NAME
	builds  map[string]*built         // by NAMESPACE/NAME of the Kustomization
	queue   []string                  // keys of builds
}

type helmRepository struct {
	url      string
	insecure bool
}

// built is a Kustomization and what it was built to.
type built struct {
	obj     *kustomizev1.Kustomization
	dir     string
	objects []*unstructured.Unstructured
	trace   *build.Trace // nil if it was not built
	times   int          // that it was built
}

// maxBuilds bounds how often a Kustomization is built because another one changes it.
const maxBuilds = 4

// Find returns what the manifests in a tree refer to. Kustomizations whose path is in the tree are built, so that
// images are those that the cluster runs. Other files are read as they are. Files that are not manifests are skipped;
// warn is called for what cannot be evaluated.
func Find(ctx context.Context, tree *artifact.Tree, warn func(message string)) (*Found, error) {
	f := &finder{tree: tree, warn: warn, changes: map[string]Change{}, charts: map[string]helmRepository{},
		builds: map[string]*built{}}
	files, err := f.read()
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f.declare(files[name])
	}
	for len(f.queue) > 0 {
		b := f.builds[f.queue[0]]
		f.queue = f.queue[1:]
		f.build(ctx, b)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	f.collect(files)
	if len(f.items) > maxItems {
		return nil, fmt.Errorf("the repository refers to more than %d images, charts and artifacts", maxItems)
	}
	return &Found{Items: f.resolved(), Changes: sortChanges(f.changes)}, nil
}

// collect collects what the built objects and the files that no build has read refer to.
func (f *finder) collect(files map[string][]*unstructured.Unstructured) {
	for _, key := range slices.Sorted(maps.Keys(f.builds)) {
		b := f.builds[key]
		first := len(f.items)
		for _, o := range b.objects {
			f.object(b.dir, o)
		}
		f.changeImages(b.obj, f.items[first:])
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if f.hasBuilt(name) {
			continue
		}
		for _, o := range files[name] {
			f.object(name, o)
		}
	}
}

// read returns the objects of all files with manifests.
func (f *finder) read() (map[string][]*unstructured.Unstructured, error) {
	files := map[string][]*unstructured.Unstructured{}
	err := f.tree.Walk(func(name string, e *artifact.Entry) error {
		if e.Mode.IsDir() {
			return nil
		}
		switch path.Ext(name) {
		case ".yaml", ".yml", ".json":
		default:
			return nil
		}
		if info, err := f.tree.Stat(name); err != nil || info.Size() > maxFile {
			return nil
		}
		content, err := f.tree.ReadFile(name)
		if err != nil || !bytes.Contains(content, []byte("apiVersion")) {
			return err
		}
		if objects, err := manifest.Decode(content); err == nil { // else a template, or not for Kubernetes
			files[name] = objects
		}
		return nil
	})
	return files, err
}

// declare notes the Helm repositories and Kustomizations among objects.
func (f *finder) declare(objects []*unstructured.Unstructured) {
	for _, o := range objects {
		switch {
		case is(o, sourcev1.GroupVersion.Group, sourcev1.HelmRepositoryKind):
			f.charts[o.GetNamespace()+"/"+o.GetName()] = helmRepository{url: text(o, "spec", "url"),
				insecure: flag(o, "spec", "insecure")}
		case is(o, kustomizev1.GroupVersion.Group, kustomizev1.KustomizationKind):
			obj := &kustomizev1.Kustomization{}
			if manifest.Convert(o, obj) == nil {
				f.enqueue(obj)
			}
		}
	}
}

// enqueue queues a Kustomization that is new, or that another one has changed.
func (f *finder) enqueue(obj *kustomizev1.Kustomization) {
	key := obj.Namespace + "/" + obj.Name
	known := f.builds[key]
	if known == nil {
		known = &built{}
		f.builds[key] = known
	} else if known.times == maxBuilds || equality.Semantic.DeepEqual(known.obj.Spec, obj.Spec) {
		return
	}
	known.obj = obj
	f.queue = append(f.queue, key)
}

// build builds a Kustomization if its path is in the tree.
func (f *finder) build(ctx context.Context, b *built) {
	obj := b.obj
	b.times++
	b.dir = strings.Trim(path.Clean("/"+obj.Spec.Path), "/")
	if info, err := f.tree.Stat(cmp.Or(b.dir, ".")); err != nil || !info.IsDir() || b.dir == "" {
		return // of another source; or the whole tree, whose files are read anyway
	}
	req, err := spec.Request(obj)
	if err != nil {
		f.warn(fmt.Sprintf("Kustomization '%s' is not built: %v", obj.Name, err))
		return
	}
	if variables, err := spec.ReadVariables(ctx, nil, obj); err == nil {
		req.Substitution = variables.Substitution(false)
	}
	req.Tree, req.Redact = f.tree, true
	result, err := build.Build(ctx, req)
	if err != nil {
		f.warn(fmt.Sprintf("Kustomization '%s' cannot be built, so its files are read as they are: %v", obj.Name, err))
		return
	}
	b.trace, b.objects = result.Trace, result.Objects
	f.declare(result.Objects)
}

// hasBuilt reports whether a build has read a file.
func (f *finder) hasBuilt(name string) bool {
	for _, b := range f.builds {
		if b.trace != nil && b.trace.HasRead(name) {
			return true
		}
	}
	return false
}
