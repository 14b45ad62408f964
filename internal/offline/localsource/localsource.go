// Package localsource reads sources on the command line, for a change that declares them: from the cluster if it has
// their artifact, or else from their host, as the source controller does.
package localsource

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build/remotebase"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/offline/localrelease"
	"github.com/sluice-gitops/sluice/internal/offline/lookup"
	"github.com/sluice-gitops/sluice/internal/source"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/source/helm"
)

// Options say where sources are.
type Options struct {
	Live   client.Reader // the cluster, with the rights of the user; nil without a cluster
	Config *rest.Config  // of the cluster
	// Declared returns a source as the change declares it; nil if the change does not.
	Declared func(kind string, key types.NamespacedName) client.Object
}

// Reader reads sources. It keeps what it read, and is used by one goroutine.
type Reader struct {
	options Options
	dir     string // temporary, for mirrors
	charts  *source.HelmChart
	oci     *source.OCIRepository
	git     *source.GitRepository
	egress  *egress.Policy
	bases   *access.Bases
	known   map[string]*Content
}

// Content is the files of a source.
type Content struct {
	Tree     *artifact.Tree
	Revision string
}

// New returns a Reader. Close removes what it keeps.
func New(o Options) *Reader {
	objects := &overlay{options: o}
	policy := &egress.Policy{RefuseLinkLocal: true}
	connector := access.Connector{Secrets: access.Secrets{Reader: objects}, Egress: policy,
		Identities: &auth.Identities{}}
	registries, signatures := &access.Registries{Connector: connector}, &access.Signatures{Connector: connector}
	return &Reader{options: o, known: map[string]*Content{}, egress: policy,
		charts: &source.HelmChart{Objects: objects, Secrets: connector.Secrets, Signatures: signatures,
			Clock: clock.RealClock{}, Charts: &source.HelmCharts{Connector: connector, Objects: objects,
				Registries: registries, Limits: helm.DefaultLimits}},
		oci: &source.OCIRepository{Registries: registries, Signatures: signatures},
		git: &source.GitRepository{Access: &access.Git{Connector: connector, GitHubApps: &auth.GitHubApps{}},
			Objects: objects, Clock: clock.RealClock{}},
	}
}

// Close removes what the reader keeps.
func (r *Reader) Close() {
	if r.dir != "" {
		_ = os.RemoveAll(r.dir)
	}
}

// Object returns a source as the change declares it, or else as it is in the cluster.
func (r *Reader) Object(ctx context.Context, kind string, key types.NamespacedName) (sourcev1.Source, error) {
	if r.options.Declared != nil {
		if declared, ok := r.options.Declared(kind, key).(sourcev1.Source); ok && declared != nil {
			return declared, nil
		}
	}
	return r.live(ctx, kind, key)
}

// live returns a source of the cluster.
func (r *Reader) live(ctx context.Context, kind string, key types.NamespacedName) (sourcev1.Source, error) {
	live := sourcev1.NewSource(kind)
	if live == nil {
		return nil, fmt.Errorf("sources of kind '%s' are not supported", kind)
	}
	if err := r.options.Live.Get(ctx, key, live.(client.Object)); err != nil {
		return nil, lookup.Explain(fmt.Sprintf("cannot get %s '%s'", kind, key), err)
	}
	return live, nil
}

// Read returns the files of a source: those that the cluster has if it declares the same source, or else those that the
// source controller would fetch.
func (r *Reader) Read(ctx context.Context, kind string, obj sourcev1.Source) (*Content, error) {
	key := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	id := kind + "/" + key.String()
	if c := r.known[id]; c != nil {
		return c, nil
	}
	live, err := r.live(ctx, kind, key)
	if err != nil {
		live = nil
	}
	var missing error
	if live != nil && r.isCurrent(live, obj) {
		var c Content
		at := localrelease.Cluster{Client: r.options.Live, Config: r.options.Config}
		if c.Tree, c.Revision, missing = localrelease.Fetch(ctx, at, kind, key); missing == nil {
			r.known[id] = &c
			return &c, nil
		}
		obj = r.pinned(live)
	}
	c, err := r.fetch(ctx, obj, live)
	switch {
	case err != nil && missing != nil:
		return nil, fmt.Errorf("%w; and %s '%s' cannot be fetched: %w", missing, kind, key, err)
	case err != nil:
		return nil, fmt.Errorf("%s '%s' cannot be fetched: %w", kind, key, err)
	}
	r.known[id] = c
	return c, nil
}

// Fetched returns the files of a source of the cluster as our source controller fetches them: the revision that the
// cluster has, without its artifact.
func (r *Reader) Fetched(ctx context.Context, kind string, key types.NamespacedName) (*Content, error) {
	id := "fetched " + kind + "/" + key.String()
	if c := r.known[id]; c != nil {
		return c, nil
	}
	live, err := r.live(ctx, kind, key)
	if err != nil {
		return nil, err
	}
	c, err := r.fetch(ctx, r.pinned(live), live)
	if err == nil {
		r.known[id] = c
	}
	return c, err
}

// isCurrent reports whether the artifact of a source in the cluster is that of the declared source.
func (r *Reader) isCurrent(live, declared sourcev1.Source) bool {
	if !meta.Equal(specOf(live), specOf(declared)) {
		return false
	}
	chart, ok := declared.(*sourcev1.HelmChart)
	if !ok || r.options.Declared == nil {
		return true
	}
	return r.options.Declared(chart.Spec.SourceRef.Kind, types.NamespacedName{Namespace: chart.Namespace,
		Name: chart.Spec.SourceRef.Name}) == nil
}

// pinned returns a source of the cluster that is fixed to the revision of its artifact.
func (r *Reader) pinned(live sourcev1.Source) sourcev1.Source {
	a := live.GetArtifact()
	if a == nil {
		return live
	}
	switch s := live.DeepCopyObject().(type) {
	case *sourcev1.HelmChart:
		r.charts.Pin(s, a.Revision)
		return s
	case *sourcev1.OCIRepository:
		r.oci.Pin(s, a.Revision)
		return s
	case *sourcev1.GitRepository:
		r.git.Pin(s, a.Revision)
		return s
	}
	return live
}

// fetch reads a source from its host.
func (r *Reader) fetch(ctx context.Context, obj, live sourcev1.Source) (*Content, error) {
	safe, err := withoutCredentials(obj, live)
	if err != nil {
		return nil, err
	}
	switch s := safe.(type) {
	case *sourcev1.HelmChart:
		if s.Spec.SourceRef.Kind != sourcev1.HelmRepositoryKind {
			return r.packaged(ctx, s)
		}
		return read(ctx, r.charts, s)
	case *sourcev1.OCIRepository:
		return read(ctx, r.oci, s)
	case *sourcev1.GitRepository:
		if len(s.Spec.Include) > 0 {
			return nil, fmt.Errorf("it includes other repositories, which only its controller adds")
		}
		if r.git.Mirrors == nil {
			if r.git.Mirrors, err = r.mirrors("sources"); err != nil {
				return nil, err
			}
		}
		return read(ctx, r.git, s)
	}
	return nil, fmt.Errorf("only its controller can read it")
}

// FetchBase returns the files of a repository that a kustomization names by its URL, as the controllers fetch them with
// --no-remote-bases=false.
func (r *Reader) FetchBase(ctx context.Context, base remotebase.Base) (*artifact.Tree, error) {
	if r.bases == nil {
		mirrors, err := r.mirrors("bases")
		if err != nil {
			return nil, err
		}
		r.bases = &access.Bases{Mirrors: mirrors, Egress: r.egress}
	}
	return r.bases.Fetch(ctx, base)
}

func (r *Reader) mirrors(name string) (m *git.Mirrors, err error) {
	if r.dir == "" {
		if r.dir, err = os.MkdirTemp("", "sluice-sources-"); err != nil {
			return nil, err
		}
	}
	return git.NewMirrors(filepath.Join(r.dir, name)), nil
}

// Tree returns the files of a source. It implements [source.Trees].
func (r *Reader) Tree(ctx context.Context, kind string, name types.NamespacedName) (*artifact.Tree, error) {
	obj, err := r.Object(ctx, kind, name)
	if err != nil {
		return nil, err
	}
	content, err := r.Read(ctx, kind, obj)
	if err != nil {
		return nil, err
	}
	return content.Tree, nil
}

// packaged returns the chart of a HelmChart from the files of another source.
func (r *Reader) packaged(ctx context.Context, obj *sourcev1.HelmChart) (*Content, error) {
	ref := obj.Spec.SourceRef
	from, err := r.Object(ctx, ref.Kind, types.NamespacedName{Namespace: obj.Namespace, Name: ref.Name})
	if err != nil {
		return nil, err
	}
	content, err := r.Read(ctx, ref.Kind, from)
	if err != nil {
		return nil, err
	}
	tree, err := r.Package(ctx, obj, content.Tree, content.Revision, r.Tree)
	return &Content{Tree: tree, Revision: content.Revision}, err
}

// read runs a fetcher of the source controller.
func read[P source.Object, R source.Revision](ctx context.Context, f source.Fetcher[P, R], obj P) (*Content, error) {
	request := source.Request[P]{Object: obj}
	revision, err := f.Resolve(ctx, request)
	if err != nil {
		return nil, err
	}
	if c, ok := any(revision).(io.Closer); ok {
		defer func() { _ = c.Close() }()
	}
	fetched, err := f.Fetch(ctx, request, revision)
	if err != nil {
		return nil, err
	}
	c := &Content{Tree: fetched.Tree, Revision: revision.String()}
	if fetched.File == nil {
		return c, nil
	}
	defer func() { _ = fetched.File.Close() }() // it was only read
	c.Tree, err = artifact.ReadArchive(ctx, fetched.File)
	return c, err
}

// Package packages the chart of a HelmChart from the tree of a revision of its source, as its controller does.
func (r *Reader) Package(ctx context.Context, obj *sourcev1.HelmChart, tree *artifact.Tree, revision string,
	trees source.Trees) (*artifact.Tree, error) {
	obj = obj.DeepCopy()
	obj.Generation = 1
	if r.options.Live != nil {
		live := &sourcev1.HelmChart{}
		if r.options.Live.Get(ctx, client.ObjectKeyFromObject(obj), live) == nil {
			if obj.Generation = live.Generation; !meta.Equal(live.Spec, obj.Spec) {
				obj.Generation++
			}
		}
	}
	p, err := r.charts.Package(ctx, obj, tree, revision, trees)
	if err != nil {
		return nil, err
	}
	return artifact.ReadArchive(ctx, bytes.NewReader(p.Data))
}
