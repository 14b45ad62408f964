package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/kustomization/spec"
	"github.com/sluice-gitops/sluice/internal/source/ignore"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// localBuild says from which local files a Kustomization is built, and how.
type localBuild struct {
	path, file                string
	ignore                    []string
	sources                   map[string]string
	recursive, strict, dryRun bool
	inMemory                  bool // it always is
}

func (l *localBuild) bind(f *pflag.FlagSet) {
	f.StringVar(&l.path, "path", "", "directory that stands for spec.path of the Kustomization")
	f.StringVar(&l.file, "kustomization-file", "", "file that declares the Kustomization, instead of the cluster")
	f.StringSliceVar(&l.ignore, "ignore-paths", nil, "paths to leave out, in .gitignore syntax")
	f.StringToStringVar(&l.sources, "local-sources", nil, "directories of sources, as KIND/NAMESPACE/NAME=DIRECTORY")
	f.BoolVar(&l.recursive, "recursive", false,
		"go on with the Kustomizations among the objects whose source is at hand")
	f.BoolVar(&l.strict, "strict-substitute", false, "fail when a variable is not set and has no default")
	f.BoolVar(&l.inMemory, "in-memory-build", true, "build in memory; there is no other way")
}

// builder builds Kustomizations from local files.
type builder struct {
	*app
	localBuild
	cluster client.Client             // nil: nothing is asked of it
	configs *configs                  // of variables
	trees   map[string]*artifact.Tree // of sources, by [sourceKey]
	seen    map[types.NamespacedName]bool
}

// builtKustomization is a Kustomization and what its source was built to.
type builtKustomization struct {
	*build.Result
	kustomization *kustomizev1.Kustomization
}

// open checks the flags, and reaches for the cluster if it is needed.
func (l *localBuild) open(a *app) (*builder, error) {
	b := &builder{app: a, localBuild: *l, trees: map[string]*artifact.Tree{}, seen: map[types.NamespacedName]bool{}}
	if l.path == "" && len(l.sources) == 0 {
		return nil, usagef("--path is missing")
	}
	if l.dryRun && l.file == "" {
		return nil, usagef("--dry-run asks the cluster for nothing: say by --kustomization-file where the " +
			"Kustomization is declared")
	}
	for source := range l.sources {
		if strings.Count(source, "/") != 2 {
			return nil, usagef("--local-sources %q: write it as KIND/NAMESPACE/NAME=DIRECTORY", source)
		}
	}
	if l.dryRun {
		return b, nil
	}
	var err error
	b.cluster, err = a.client()
	b.configs = &configs{Reader: b.cluster, built: map[client.ObjectKey]map[string]*unstructured.Unstructured{}}
	return b, err
}

// each builds a Kustomization, and with --recursive those among its objects too, and hands each to use.
func (b *builder) each(ctx context.Context, key types.NamespacedName, use func(*builtKustomization) error) error {
	obj, err := b.declared(ctx, key)
	if err != nil {
		return err
	}
	if err := b.take(ctx, obj); err != nil {
		return err
	}
	return b.build(ctx, obj, use)
}

// declared returns the Kustomization of the file, or else of the cluster.
func (b *builder) declared(ctx context.Context, key types.NamespacedName) (*kustomizev1.Kustomization, error) {
	if b.file == "" {
		obj, err := fetch(ctx, b.cluster, byTitle(kustomizev1.KustomizationKind), key)
		if err != nil {
			return nil, err
		}
		return obj.(*kustomizev1.Kustomization), nil
	}
	content, err := os.ReadFile(b.file)
	if err != nil {
		return nil, err
	}
	objects, err := decode(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.file, err)
	}
	for _, o := range objects {
		if isKustomization(o) && o.GetName() == key.Name && cmp.Or(o.GetNamespace(), key.Namespace) == key.Namespace {
			o.SetNamespace(key.Namespace)
			return asKustomization(o)
		}
	}
	return nil, fmt.Errorf("%s declares no Kustomization '%s'", b.file, key)
}

func isKustomization(o *unstructured.Unstructured) bool {
	gvk := o.GroupVersionKind()
	return gvk.Group == kustomizev1.GroupVersion.Group && gvk.Kind == kustomizev1.KustomizationKind
}

// asKustomization reads an object of any version: they all are read alike.
func asKustomization(o *unstructured.Unstructured) (*kustomizev1.Kustomization, error) {
	obj := &kustomizev1.Kustomization{}
	b, err := o.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(b, obj) // which names the field that is wrong
	}
	if err != nil {
		return nil, fmt.Errorf("Kustomization '%s/%s' cannot be read: %w", o.GetNamespace(), o.GetName(), err)
	}
	return obj, nil
}

// take reads the directory of --path as the source of a Kustomization, and makes its path that of the directory in it.
// The source is what is above the part that spec.path names, else the working tree of git, else the directory alone.
func (b *builder) take(ctx context.Context, obj *kustomizev1.Kustomization) error {
	if b.path == "" {
		return nil
	}
	dir, err := filepath.Abs(b.path)
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
	b.trees[sourceKey(obj)], err = b.read(ctx, obj, root)
	return err
}

// workingTree is the directory at or above another that git keeps; nothing if there is none.
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

func sourceKey(obj *kustomizev1.Kustomization) string {
	ref := obj.Spec.SourceRef
	return ref.Kind + "/" + cmp.Or(ref.Namespace, obj.Namespace) + "/" + ref.Name
}

// tree returns the source of a Kustomization; nil if it is not at hand.
func (b *builder) tree(ctx context.Context, obj *kustomizev1.Kustomization) (*artifact.Tree, error) {
	key := sourceKey(obj)
	dir, ok := b.sources[key]
	if b.trees[key] != nil || !ok {
		return b.trees[key], nil
	}
	tree, err := b.read(ctx, obj, dir)
	b.trees[key] = tree
	return tree, err
}

// read reads the directory of a source, without what the source leaves out.
func (b *builder) read(ctx context.Context, obj *kustomizev1.Kustomization, dir string) (*artifact.Tree, error) {
	rules, err := b.ignored(ctx, obj)
	if err != nil {
		return nil, err
	}
	tree, err := oci.ReadLocal(dir, ignore.New(rules).With(strings.Join(b.ignore, "\n")), false)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", dir, err)
	}
	return tree, nil
}

// ignored is spec.ignore of a Kustomization's source; nil when it has none or cannot be asked for it.
func (b *builder) ignored(ctx context.Context, obj *kustomizev1.Kustomization) (*string, error) {
	k := byTitle(obj.Spec.SourceRef.Kind)
	if b.cluster == nil || k == nil {
		return nil, nil
	}
	source := k.new()
	err := b.cluster.Get(ctx, types.NamespacedName{Namespace: cmp.Or(obj.Spec.SourceRef.Namespace, obj.Namespace),
		Name: obj.Spec.SourceRef.Name}, source)
	switch source := source.(type) {
	case *sourcev1.GitRepository:
		return source.Spec.Ignore, explain("cannot get "+sourceKey(obj), client.IgnoreNotFound(err))
	case *sourcev1.OCIRepository:
		return source.Spec.Ignore, explain("cannot get "+sourceKey(obj), client.IgnoreNotFound(err))
	case *sourcev1.Bucket:
		return source.Spec.Ignore, explain("cannot get "+sourceKey(obj), client.IgnoreNotFound(err))
	}
	return nil, nil
}

// build builds a Kustomization whose source is at hand.
func (b *builder) build(ctx context.Context, obj *kustomizev1.Kustomization,
	use func(*builtKustomization) error) error {
	key := client.ObjectKeyFromObject(obj)
	b.seen[key] = true
	tree, err := b.tree(ctx, obj)
	if err != nil {
		return err
	}
	if tree == nil {
		return fmt.Errorf("the source of Kustomization '%s' is not at hand. Say by --local-sources %s=DIRECTORY "+
			"where it is", key, sourceKey(obj))
	}
	req, err := b.request(ctx, obj, tree)
	if err != nil {
		return fmt.Errorf("Kustomization '%s': %w", key, err)
	}
	result, err := build.Build(ctx, req)
	if err != nil {
		return fmt.Errorf("Kustomization '%s': %w", key, err)
	}
	if err := use(&builtKustomization{result, obj}); err != nil || !b.recursive {
		return err
	}
	if b.configs != nil {
		b.configs.add(result.Objects)
	}
	return b.below(ctx, result.Objects, use)
}

// request is the build that the controller would do, but for what it decrypts.
func (b *builder) request(ctx context.Context, obj *kustomizev1.Kustomization, tree *artifact.Tree) (build.Request,
	error) {
	req, err := spec.Request(obj)
	if err != nil {
		return req, err
	}
	var from client.Reader
	if b.configs != nil {
		from = b.configs
	}
	variables, err := spec.ReadVariables(ctx, from, obj)
	if err != nil {
		return req, err
	}
	labels := maps.Clone(req.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, ownerOf(obj).Labels())
	req.Labels = labels
	req.Tree, req.Substitution, req.Redact = tree, variables.Substitution(b.strict), obj.Spec.Decryption != nil
	return req, nil
}

func ownerOf(obj *kustomizev1.Kustomization) apply.Owner {
	return apply.Owner{Group: kustomizev1.GroupVersion.Group, Namespace: obj.Namespace, Name: obj.Name}
}

// below builds the Kustomizations among the objects of another.
func (b *builder) below(ctx context.Context, objects []*unstructured.Unstructured,
	use func(*builtKustomization) error) error {
	for _, o := range objects {
		if !isKustomization(o) {
			continue
		}
		obj, err := asKustomization(o)
		if err != nil {
			return err
		}
		obj.Namespace = cmp.Or(obj.Namespace, metav1.NamespaceDefault)
		key := client.ObjectKeyFromObject(obj)
		if b.seen[key] {
			continue
		}
		if _, local := b.sources[sourceKey(obj)]; !local && b.trees[sourceKey(obj)] == nil {
			b.seen[key] = true
			b.say(yellow, "►", "Kustomization '%s' is left out: say by --local-sources %s=DIRECTORY where its "+
				"source is", key, sourceKey(obj))
			continue
		}
		if err := b.build(ctx, obj, use); err != nil {
			return err
		}
	}
	return nil
}
