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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// GitRepository is the domain step of the kind: resolve the reference, fetch what is new, store the artifact.
type GitRepository struct {
	Secrets client.Reader // reads Secrets past the cache
	Store   *artifact.Store
	Dir     string // where the mirrors are kept

	mu      sync.Mutex
	mirrors map[types.UID]*mirror
}

// mirror is the kept repository of one object.
type mirror struct {
	*git.Mirror
	dir string
	put string // the content key of the artifact that this process put last
}

// References lists what the repository builds on.
func (g *GitRepository) References(obj *sourcev1.GitRepository) []reconcile.Ref {
	if obj.Spec.SecretRef == nil {
		return nil
	}
	return []reconcile.Ref{reconcile.RefTo(schema.GroupKind{Kind: "Secret"}, obj.Namespace, obj.Spec.SecretRef.Name)}
}

// Reconcile brings the artifact to the revision that the reference points at.
func (g *GitRepository) Reconcile(ctx context.Context, pass *reconcile.Pass[*sourcev1.GitRepository]) reconcile.Outcome {
	obj := pass.Object
	if a := obj.Status.Artifact; a != nil && g.Store.Verify(ctx, gitRepositoryKey(obj), a) != nil {
		obj.Status.Artifact = nil // no longer there whole: fetched and written again
		reconcile.Unmark(obj, sourcev1.ArtifactInStorageCondition)
	}
	fetched, err := g.fetch(ctx, obj)
	if err != nil {
		return failed(obj, sourcev1.FetchFailedCondition, err)
	}
	reconcile.Unmark(obj, sourcev1.FetchFailedCondition)

	revision := fetched.revision.String()
	if content := contentKey(obj, revision); !obj.Status.Artifact.HasRevision(revision) || fetched.mirror.put != content {
		if err := g.store(ctx, obj, fetched); err != nil {
			return failed(obj, sourcev1.StorageOperationFailedCondition, err)
		}
		fetched.mirror.put = content
	}
	reconcile.Unmark(obj, sourcev1.StorageOperationFailedCondition)
	message := fmt.Sprintf("stored artifact for revision '%s'", revision)
	reconcile.Mark(obj, sourcev1.ArtifactInStorageCondition, metav1.ConditionTrue, meta.SucceededReason, message)
	return reconcile.Ready(meta.SucceededReason, "%s", message).
		About("revision", revision).About("digest", obj.Status.Artifact.Digest)
}

// fetched is a revision that the mirror holds.
type fetched struct {
	mirror   *mirror
	revision git.Revision
}

// contentKey tells artifacts of one object apart.
func contentKey(obj *sourcev1.GitRepository, revision string) string {
	return revision + "\n" + ptr.Deref(obj.Spec.Ignore, "")
}

// fetch resolves the reference and brings the mirror to it; nothing travels when it holds the revision already.
func (g *GitRepository) fetch(ctx context.Context, obj *sourcev1.GitRepository) (fetched, error) {
	if err := refuse(obj); err != nil {
		return fetched{}, err
	}
	remote, err := g.remote(ctx, obj)
	if err != nil {
		return fetched{}, err
	}
	m, err := g.open(obj)
	if err != nil {
		return fetched{}, err
	}
	revision, err := m.Update(ctx, remote, reference(obj.Spec.Reference))
	return fetched{m, revision}, err
}

// store packages the revision and drops the artifacts that retention no longer keeps.
func (g *GitRepository) store(ctx context.Context, obj *sourcev1.GitRepository, f fetched) error {
	tree, err := f.mirror.Tree(f.revision, obj.Spec.Ignore)
	if err != nil {
		return err
	}
	key := gitRepositoryKey(obj)
	a, err := g.Store.Put(ctx, key, tree, f.revision.String(), obj.Status.Artifact)
	if err != nil {
		return err
	}
	obj.Status.Artifact = a
	obj.Status.ObservedIgnore = obj.Spec.Ignore
	_, err = g.Store.Collect(key, a)
	return err
}

func (g *GitRepository) remote(ctx context.Context, obj *sourcev1.GitRepository) (git.Remote, error) {
	remote := git.Remote{URL: obj.Spec.URL}
	data := map[string][]byte{}
	if ref := obj.Spec.SecretRef; ref != nil {
		var secret corev1.Secret
		err := g.Secrets.Get(ctx, types.NamespacedName{Namespace: obj.Namespace, Name: ref.Name}, &secret)
		if apierrors.IsNotFound(err) {
			return remote, fault.New(meta.AuthenticationFailedReason, "Secret '%s/%s' not found", obj.Namespace, ref.Name).
				WithHint("Create it, or correct spec.secretRef")
		}
		if err != nil {
			return remote, fault.New(meta.AuthenticationFailedReason, "cannot read Secret '%s/%s'", obj.Namespace, ref.Name).Because(err)
		}
		data = secret.Data
	}
	credentials, err := auth.Git(obj.Spec.URL, data)
	remote.Credentials = credentials
	return remote, err
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

// Finalize removes the artifact and the mirror.
func (g *GitRepository) Finalize(_ context.Context, obj *sourcev1.GitRepository) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var closed error
	if m := g.mirrors[obj.UID]; m != nil {
		closed = m.Close()
		delete(g.mirrors, obj.UID)
	}
	return errors.Join(closed,
		os.RemoveAll(filepath.Join(g.Dir, string(obj.UID))),
		g.Store.Remove(gitRepositoryKey(obj)))
}

func gitRepositoryKey(obj *sourcev1.GitRepository) artifact.Key {
	return artifact.Key{Kind: sourcev1.GitRepositoryKind, Namespace: obj.Namespace, Name: obj.Name}
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

// failed reports a failure in a condition of its own beside Ready. The last artifact stays and keeps being served.
func failed(obj reconcile.Object, condition string, err error) reconcile.Outcome {
	reconcile.Mark(obj, condition, metav1.ConditionTrue, fault.Reason(err, meta.FailedReason), err.Error())
	return reconcile.Failed(err)
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
