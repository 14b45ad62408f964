package localbuild

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/offline/lookup"
	"github.com/sluice-gitops/sluice/internal/source/ignore"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// SourceKey returns the source of a Kustomization as KIND/NAMESPACE/NAME.
func SourceKey(obj *kustomizev1.Kustomization) string {
	ref := obj.Spec.SourceRef
	return ref.Kind + "/" + cmp.Or(ref.Namespace, obj.Namespace) + "/" + ref.Name
}

// UseSource makes a tree the source of a Kustomization, and of the others that have the same source.
func (b *Builder) UseSource(obj *kustomizev1.Kustomization, tree *artifact.Tree) {
	if !b.options.FollowSymlinks {
		tree = tree.WithoutLinks()
	}
	b.trees[SourceKey(obj)] = tree
}

// replaceSource reads local files as the source of a Kustomization, and sets spec.path to Options.Path within them. If
// Options.Path ends with spec.path, the source is the directory above that. Otherwise it is the git working tree that
// contains Options.Path, or else Options.Path itself.
func (b *Builder) replaceSource(ctx context.Context, obj *kustomizev1.Kustomization) error {
	if b.options.Path == "" {
		return nil
	}
	dir, err := filepath.Abs(b.options.Path)
	if err != nil {
		return err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	root := dir
	if inside := filepath.FromSlash(path.Clean("/" + obj.Spec.Path)); strings.HasSuffix(dir, inside) && inside != "/" {
		root = filepath.Clean(strings.TrimSuffix(dir, inside) + "/")
	} else if inside != "/" {
		root = cmp.Or(workingTree(dir), dir)
	}
	inside, err := filepath.Rel(root, dir)
	if err != nil {
		return err
	}
	obj.Spec.Path = filepath.ToSlash(inside)
	b.trees[SourceKey(obj)], err = b.read(ctx, obj, root)
	return err
}

// workingTree returns the root of the git working tree that contains a directory, or "".
func workingTree(dir string) string {
	for {
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			return ""
		}
		dir = filepath.Dir(dir)
	}
}

// tree returns the source of a Kustomization, or nil if it is not local.
func (b *Builder) tree(ctx context.Context, obj *kustomizev1.Kustomization) (*artifact.Tree, error) {
	key := SourceKey(obj)
	dir, ok := b.options.Sources[key]
	if b.trees[key] != nil || !ok {
		return b.trees[key], nil
	}
	tree, err := b.read(ctx, obj, dir)
	b.trees[key] = tree
	return tree, err
}

// read reads the directory of a source, without the files that the source ignores.
func (b *Builder) read(ctx context.Context, obj *kustomizev1.Kustomization, dir string) (*artifact.Tree, error) {
	spec, err := b.ignoreRules(ctx, obj)
	if err != nil {
		return nil, err
	}
	rules, err := ignore.New(spec)
	if err == nil {
		rules, err = rules.With(strings.Join(b.options.IgnorePaths, "\n"))
	}
	if err != nil {
		return nil, err
	}
	tree, err := oci.ReadLocal(dir, rules, false)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", dir, err)
	}
	if b.options.FollowSymlinks {
		return tree, nil
	}
	return tree.WithoutLinks(), nil
}

// ignoreRules returns spec.ignore of a Kustomization's source. It returns nil if there is none or if the build is
// offline.
func (b *Builder) ignoreRules(ctx context.Context, obj *kustomizev1.Kustomization) (*string, error) {
	ref := obj.Spec.SourceRef
	k := kind.ByName(ref.Kind)
	if b.cluster == nil || k == nil {
		return nil, nil
	}
	source := k.New()
	key := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, obj.Namespace), Name: ref.Name}
	err := lookup.Explain("cannot get "+SourceKey(obj), client.IgnoreNotFound(b.cluster.Get(ctx, key, source)))
	switch source := source.(type) {
	case *sourcev1.GitRepository:
		return source.Spec.Ignore, err
	case *sourcev1.OCIRepository:
		return source.Spec.Ignore, err
	case *sourcev1.Bucket:
		return source.Spec.Ignore, err
	}
	return nil, nil
}
