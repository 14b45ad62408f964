package preview

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/offline/localsource"
	"github.com/sluice-gitops/sluice/internal/offline/lookup"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	sources "github.com/sluice-gitops/sluice/internal/source"
)

// source is a source that holds the repository.
type source struct {
	key      string // KIND/NAMESPACE/NAME
	kind     string
	dir      string          // of the repository that is the root of the source; the whole repository when empty
	object   reconcile.Gated // as the change declares it; nil without a cluster
	from, to client.Object   // before and after the change; nil if it is not known
}

// namedSource is a value of --source.
type namedSource struct{ key, dir string }

// nameSources reads the values of --source.
func (r *run) nameSources() error {
	for _, text := range r.Sources {
		key, dir, _ := strings.Cut(text, "=")
		parts := strings.Split(key, "/")
		if len(parts) != 3 || sourcev1.NewSource(parts[0]) == nil || strings.HasPrefix(path.Clean(dir), "..") {
			return fmt.Errorf("--source %q: use KIND/NAMESPACE/NAME, such as GitRepository/flux-system/flux-system, "+
				"or KIND/NAMESPACE/NAME=DIRECTORY with a directory of the repository", text)
		}
		r.named = append(r.named, namedSource{key: key, dir: strings.Trim(path.Clean("/"+dir), "/")})
	}
	return nil
}

// newReader returns a reader of the sources that are not this repository.
func (r *run) newReader() *localsource.Reader {
	o := localsource.Options{Declared: func(kind string, key types.NamespacedName) client.Object {
		return r.declared[kind+"/"+key.String()]
	}}
	if r.Cluster != nil {
		o.Live, o.Config = r.Cluster.Client, r.Cluster.Config
	}
	return localsource.New(o)
}

// tree returns the files of a source before or after the change, as the source controller stores them.
func (r *run) tree(ctx context.Context, side *Snapshot, s *source) (*artifact.Tree, error) {
	if side == r.To && isSuspended(s.from) {
		r.note("%s is suspended: it keeps its files until it is resumed", s.key)
		side = r.From
	}
	key := reachKey{side: side, source: s.key}
	tree, known := r.trees[key]
	switch {
	case tree != nil:
		return tree, nil
	case known:
		return nil, fmt.Errorf("%s includes itself, directly or through others", s.key)
	}
	r.trees[key] = nil
	obj := s.to
	if side == r.From {
		obj = s.from
	}
	c := checkoutOf(obj)
	c.dir = s.dir
	tree, err := side.Tree(c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.key, err)
	}
	if g, ok := obj.(*sourcev1.GitRepository); ok {
		if tree, err = r.compose(ctx, side, g, tree); err != nil {
			return nil, fmt.Errorf("%s: %w", s.key, err)
		}
	}
	r.trees[key] = tree
	return tree, nil
}

// compose adds the repositories of spec.include.
func (r *run) compose(ctx context.Context, side *Snapshot, g *sourcev1.GitRepository, tree *artifact.Tree) (
	*artifact.Tree, error) {
	var included []*artifact.Tree
	for _, i := range g.Spec.Include {
		other, err := r.contentOf(ctx, side, sourcev1.GitRepositoryKind, types.NamespacedName{Namespace: g.Namespace,
			Name: i.GitRepositoryRef.Name})
		if err != nil {
			return nil, err
		}
		included = append(included, other)
	}
	return sources.Compose(g, tree, included)
}

// contentOf returns the files of any source: this repository, or another one.
func (r *run) contentOf(ctx context.Context, side *Snapshot, kind string, key types.NamespacedName) (*artifact.Tree,
	error) {
	if s := r.sources[kind+"/"+key.String()]; s != nil {
		return r.tree(ctx, side, s)
	}
	if r.Cluster == nil {
		return nil, fmt.Errorf("%s '%s' is not this repository, and --offline reads no other one", kind, key)
	}
	obj, err := r.reader.Object(ctx, kind, key)
	if err != nil {
		return nil, err
	}
	content, err := r.reader.Read(ctx, kind, obj)
	if err != nil {
		return nil, err
	}
	return content.Tree, nil
}

// treeFor returns the files that a Kustomization is built from.
func (r *run) treeFor(ctx context.Context, side *Snapshot, obj *kustomizev1.Kustomization) (*artifact.Tree, error) {
	ref := obj.Spec.SourceRef
	return r.contentOf(ctx, side, ref.Kind, types.NamespacedName{Namespace: cmp.Or(ref.Namespace, obj.Namespace),
		Name: ref.Name})
}

// findSources finds the sources that hold the repository.
func (r *run) findSources(ctx context.Context) error {
	r.sources = map[string]*source{}
	for _, n := range r.named {
		parts := strings.Split(n.key, "/")
		obj := sourcev1.NewSource(parts[0]).(client.Object)
		err := r.Cluster.Client.Get(ctx, types.NamespacedName{Namespace: parts[1], Name: parts[2]}, obj)
		if client.IgnoreNotFound(err) != nil {
			return lookup.Explain("cannot get "+n.key, err)
		}
		if err != nil { // the change may create it
			obj = nil
		}
		r.sources[n.key] = newSource(n.key, n.dir, obj)
	}
	if len(r.sources) > 0 {
		return nil
	}
	var list sourcev1.GitRepositoryList
	if err := r.list(ctx, "GitRepositories", &list); err != nil {
		return fmt.Errorf("%w. Or name the source of the repository with --source", err)
	}
	var others []string
	for n := range list.Items {
		g := &list.Items[n]
		key := "GitRepository/" + g.Namespace + "/" + g.Name
		matches := slices.ContainsFunc(r.URLs, func(u string) bool { return SameRepository(u, g.Spec.URL) })
		if matches && follows(g, r.Branch) {
			r.sources[key] = newSource(key, "", g)
		} else {
			others = append(others, key)
		}
	}
	if len(r.sources) == 0 {
		return fmt.Errorf("no GitRepository in the cluster follows branch '%s' of this repository. Name its source "+
			"with --source; the cluster has %s", r.Branch,
			cmp.Or(strings.Join(others[:min(len(others), 5)], ", "), "none"))
	}
	return nil
}

// follows reports whether a GitRepository follows a branch.
func follows(g *sourcev1.GitRepository, branch string) bool {
	ref := g.Spec.Reference
	switch {
	case branch == "":
		return true
	case ref == nil:
		return branch == "master" || branch == "main"
	case ref.Name != "":
		return ref.Name == "refs/heads/"+branch
	case ref.Commit != "" || ref.Tag != "" || ref.SemVer != "":
		return false
	}
	return ref.Branch == branch
}

func newSource(key, dir string, obj client.Object) *source {
	gated, _ := obj.(reconcile.Gated)
	kind, _, _ := strings.Cut(key, "/")
	return &source{key: key, kind: kind, dir: dir, object: gated, from: obj, to: obj}
}

// checkoutOf returns which files of a repository a source has.
func checkoutOf(obj client.Object) checkout {
	switch obj := obj.(type) {
	case *sourcev1.GitRepository:
		return checkout{ignore: obj.Spec.Ignore, sparse: obj.Spec.SparseCheckout}
	case *sourcev1.OCIRepository:
		return checkout{ignore: obj.Spec.Ignore}
	case *sourcev1.Bucket:
		return checkout{ignore: obj.Spec.Ignore}
	}
	return checkout{}
}

// sourceKinds are the kinds of sources that a change may declare.
var sourceKinds = []string{sourcev1.GitRepositoryKind, sourcev1.OCIRepositoryKind, sourcev1.BucketKind,
	sourcev1.HelmChartKind, sourcev1.HelmRepositoryKind, sourcev1.ExternalArtifactKind}

// declareSource records a source that the change creates or changes. It reports whether its spec was not known yet.
func (r *run) declareSource(kind string, key types.NamespacedName, after *unstructured.Unstructured) bool {
	var obj client.Object = &sourcev1.HelmRepository{}
	if kind != sourcev1.HelmRepositoryKind {
		obj = sourcev1.NewSource(kind).(client.Object)
	}
	id := kind + "/" + key.String()
	if r.declared[id] != nil && meta.Equal(r.declaredSpecs[id], specOf(after)) || manifest.Convert(after, obj) != nil {
		return false // the dry-run reports what does not decode
	}
	obj.SetNamespace(key.Namespace)
	r.declared[id], r.declaredSpecs[id] = obj, specOf(after)
	r.forget()
	gated, _ := obj.(reconcile.Gated)
	g, isGit := obj.(*sourcev1.GitRepository)
	holds := isGit && slices.ContainsFunc(r.URLs, func(u string) bool { return SameRepository(u, g.Spec.URL) }) &&
		follows(g, r.Branch)
	switch s := r.sources[id]; {
	case s != nil && (!isGit || holds || r.isNamed(id)):
		s.to, s.object = obj, gated
		if s.from == nil {
			s.from = obj
		}
	case s != nil:
		delete(r.sources, id) // it follows something else from now on
	case holds:
		r.sources[id] = newSource(id, "", obj)
	}
	return true
}

func isSuspended(obj client.Object) bool {
	s, ok := obj.(sourcev1.Source)
	return ok && s.Schedule().Suspended
}

func (r *run) isNamed(key string) bool {
	return slices.ContainsFunc(r.named, func(n namedSource) bool { return n.key == key })
}
