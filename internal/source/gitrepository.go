// Package source holds the controllers of the source kinds: each joins a fetcher to the artifact store.
// Fetching, verifying and packaging live in the packages below; here is only what a kind does in which order.
package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/git"
)

// GitRepositoryGroupKind identifies the kind to the kernel.
var GitRepositoryGroupKind = schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: sourcev1.GitRepositoryKind}

// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories/finalizers,verbs=get;create;update;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets;serviceaccounts,verbs=get;list;watch
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch

// GitRepository fetches the kind: it resolves the reference and brings a mirror to it.
type GitRepository struct {
	Secrets Secrets
	Store   *artifact.Store
	Dir     string // where the mirrors are kept

	mu      sync.Mutex
	mirrors map[types.UID]*mirror
}

// mirror is the kept repository of one object.
type mirror struct {
	*git.Mirror
	dir string
}

// References lists what the repository builds on.
func (g *GitRepository) References(obj *sourcev1.GitRepository) []reconcile.Ref {
	return secretRefs(obj.Namespace, obj.Spec.SecretRef)
}

// Fetch brings the mirror to the revision that the reference points at.
func (g *GitRepository) Fetch(ctx context.Context, pass *reconcile.Pass[*sourcev1.GitRepository]) (*Revision, error) {
	obj := pass.Object
	m, revision, err := g.update(ctx, obj)
	if err != nil {
		return nil, err
	}
	put := func(ctx context.Context, key artifact.Key, current *meta.Artifact) (*meta.Artifact, error) {
		tree, err := m.Tree(revision, obj.Spec.Ignore)
		if err != nil {
			return nil, err
		}
		a, err := g.Store.Put(ctx, key, tree, revision.String(), current)
		if err == nil {
			obj.Status.ObservedIgnore = obj.Spec.Ignore
		}
		return a, err
	}
	return &Revision{Name: revision.String(), Content: ptr.Deref(obj.Spec.Ignore, ""), Put: put}, nil
}

// update resolves the reference and brings the mirror to it; nothing travels when it holds the revision already.
func (g *GitRepository) update(ctx context.Context, obj *sourcev1.GitRepository) (*mirror, git.Revision, error) {
	if err := refuse(obj); err != nil {
		return nil, git.Revision{}, err
	}
	remote, err := g.remote(ctx, obj)
	if err != nil {
		return nil, git.Revision{}, err
	}
	m, err := g.open(obj)
	if err != nil {
		return nil, git.Revision{}, err
	}
	revision, err := m.Update(ctx, remote, reference(obj.Spec.Reference))
	return m, revision, err
}

func (g *GitRepository) remote(ctx context.Context, obj *sourcev1.GitRepository) (git.Remote, error) {
	data, err := g.Secrets.Data(ctx, obj.Namespace, obj.Spec.SecretRef, "spec.secretRef")
	if err != nil {
		return git.Remote{}, err
	}
	credentials, err := auth.Git(obj.Spec.URL, data)
	return git.Remote{URL: obj.Spec.URL, Credentials: credentials}, err
}

// open returns the object's kept mirror. It is kept by URL: a changed one starts anew and drops the old.
func (g *GitRepository) open(obj *sourcev1.GitRepository) (*mirror, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	home := filepath.Join(g.Dir, string(obj.UID))
	dir := filepath.Join(home, fmt.Sprintf("%x", sha256.Sum256([]byte(obj.Spec.URL)))[:16])
	m := g.mirrors[obj.UID]
	if m != nil && m.dir == dir {
		return m, nil
	}
	if m != nil {
		if err := m.Close(); err != nil {
			return nil, fault.New(meta.StorageOperationFailedReason, "cannot close the mirror of the former URL").Because(err)
		}
	}
	if err := keepOnly(home, filepath.Base(dir)); err != nil {
		return nil, fault.New(meta.StorageOperationFailedReason, "cannot remove the mirror of the former URL").Because(err)
	}
	opened, err := git.Open(dir)
	if err != nil {
		return nil, err
	}
	if g.mirrors == nil {
		g.mirrors = map[types.UID]*mirror{}
	}
	m = &mirror{Mirror: opened, dir: dir}
	g.mirrors[obj.UID] = m
	return m, nil
}

// Forget removes the mirror.
func (g *GitRepository) Forget(_ context.Context, obj *sourcev1.GitRepository) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var closed error
	if m := g.mirrors[obj.UID]; m != nil {
		closed = m.Close()
		delete(g.mirrors, obj.UID)
	}
	return errors.Join(closed, os.RemoveAll(filepath.Join(g.Dir, string(obj.UID))))
}

// keepOnly removes everything in dir but the entry called name.
func keepOnly(dir, name string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.Name() != name {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// reference translates the API's reference.
func reference(ref *sourcev1.GitRepositoryRef) git.Reference {
	if ref == nil {
		return git.Reference{}
	}
	return git.Reference{Branch: ref.Branch, Tag: ref.Tag, SemVer: ref.SemVer, Name: ref.Name, Commit: ref.Commit}
}

// refuse fails closed on fields whose meaning is to guard or to complete the content, which this controller cannot honour.
func refuse(obj *sourcev1.GitRepository) error {
	for field, set := range map[string]bool{
		"spec.verify":            obj.Spec.Verification != nil,
		"spec.include":           len(obj.Spec.Include) > 0,
		"spec.recurseSubmodules": obj.Spec.RecurseSubmodules,
		"spec.sparseCheckout":    len(obj.Spec.SparseCheckout) > 0,
		"spec.proxySecretRef":    obj.Spec.ProxySecretRef != nil,
		"spec.provider":          obj.Spec.Provider != "" && obj.Spec.Provider != "generic",
	} {
		if set {
			return fault.New(meta.FailedReason, "%s is set, which this version cannot honour", field).
				WithHint("Nothing was fetched. Remove the field, or use a version of Sluice whose docs list it").Final()
		}
	}
	return nil
}
