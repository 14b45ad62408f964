package source

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// GitRepositoryGroupKind identifies the kind to the kernel.
var GitRepositoryGroupKind = schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: sourcev1.GitRepositoryKind}

// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories,verbs=create;update;patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories/finalizers,verbs=get;create
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories/finalizers,verbs=update;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets;serviceaccounts,verbs=get;list;watch
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch

// GitRepository fetches GitRepositories: it brings a mirror to the commit that the reference leads to, verifies it, and
// adds the artifacts of included repositories.
type GitRepository struct {
	Access  *access.Git
	Objects client.Reader // a cache
	Store   *artifact.Store
	Mirrors *git.Mirrors
	Clock   clock.PassiveClock

	mu                sync.Mutex
	hasRemovedOrphans bool // whether mirrors of deleted objects were removed since the start
}

// References implements [Fetcher].
func (g *GitRepository) References(obj *sourcev1.GitRepository) []reconcile.Ref {
	refs := access.SecretRefs(obj.Namespace, obj.Spec.SecretRef, obj.Spec.ProxySecretRef)
	if v := obj.Spec.Verification; v != nil {
		refs = append(refs, access.SecretRefs(obj.Namespace, &v.SecretRef)...)
	}
	for _, i := range obj.Spec.Include {
		refs = append(refs, reconcile.RefTo(GitRepositoryGroupKind, obj.Namespace, i.GitRepositoryRef.Name))
	}
	return refs
}

// GitRevision is the commit that a reference leads to. It locks the mirror until it is fetched or closed.
type GitRevision struct {
	*git.Resolved
	view *git.View
}

// Resolve implements [Fetcher]. It transfers the list of the remote's references, or nothing if the reference is a
// commit that the mirror has.
func (g *GitRepository) Resolve(ctx context.Context, req Request[*sourcev1.GitRepository]) (GitRevision, error) {
	obj := req.Object
	if err := g.removeOrphans(ctx); err != nil {
		return GitRevision{}, In(sourcev1.StorageOperationFailedCondition, err)
	}
	if err := refuseAccessFrom(obj.Spec.AccessFrom); err != nil {
		return GitRevision{}, err
	}
	remote, err := g.Access.Remote(ctx, obj)
	if err != nil {
		return GitRevision{}, err
	}
	fresh := req.IsRequested || obj.Status.ObservedGeneration != obj.Generation
	view := g.Mirrors.View(string(obj.UID))
	resolved, err := view.Resolve(ctx, remote, access.GitReference(obj.Spec.Reference), fresh)
	return GitRevision{resolved, view}, err
}

// Fetch implements [Fetcher]. It transfers the objects of the commit that the mirror lacks. Signatures are verified on
// every pass, as a key may have expired or may have been removed from the Secret.
func (g *GitRepository) Fetch(ctx context.Context, req Request[*sourcev1.GitRepository], r GitRevision) (
	Fetched[*sourcev1.GitRepository], error) {
	obj, revision := req.Object, r.Revision
	var f Fetched[*sourcev1.GitRepository]
	if err := r.Resolved.Fetch(); err != nil {
		return f, err
	}
	mode, err := g.verify(ctx, obj, r.view, revision, &f)
	if err != nil {
		return f, err
	}
	included, err := g.included(ctx, obj)
	if err != nil {
		return f, In(sourcev1.IncludeUnavailableCondition, err)
	}
	f.Content = contentKey(obj, included)
	f.Observed = gitObserved{spec: obj.Spec, included: included, verificationMode: mode}
	if req.IsStored(revision.String(), f.Content) {
		return f, nil
	}
	tree, err := r.view.Tree(ctx, revision, treeOptions(obj))
	if err != nil {
		return f, err
	}
	if f.Tree, err = g.compose(obj, tree, included); err != nil {
		return f, In(sourcev1.IncludeUnavailableCondition, err)
	}
	f.Metadata, err = g.metadata(ctx, obj, r.view, revision)
	return f, err
}

// gitObserved is what an artifact was made from.
type gitObserved struct {
	spec             sourcev1.GitRepositorySpec
	included         []*meta.Artifact
	verificationMode *string
}

// Record implements [Observed].
func (o gitObserved) Record(obj *sourcev1.GitRepository) {
	obj.Status.ObservedIgnore = o.spec.Ignore
	obj.Status.ObservedRecurseSubmodules = o.spec.RecurseSubmodules
	obj.Status.ObservedSparseCheckout = o.spec.SparseCheckout
	obj.Status.ObservedInclude = o.spec.Include
	obj.Status.IncludedArtifacts = o.included
	obj.Status.SourceVerificationMode = o.verificationMode
}

// maxNote bounds the note of a commit in the status, in bytes.
const maxNote = 4 << 10

// metadata describes the commit: its repository, author, subject, and note.
func (g *GitRepository) metadata(ctx context.Context, obj *sourcev1.GitRepository, view *git.View,
	revision git.Revision) (map[string]string, error) {
	commit, err := view.About(revision)
	if err != nil {
		return nil, err
	}
	metadata := map[string]string{
		meta.RepositoryURLKey: fault.RedactURL(obj.Spec.URL), meta.CommitAuthorKey: commit.Author,
		meta.CommitSubjectKey: commit.Subject,
	}
	if !commit.At.IsZero() {
		metadata[meta.CommitTimeKey] = commit.At.Format(time.RFC3339)
	}
	// Notes are fetched with their commit. A note that cannot be read does not fail the commit.
	note, err := view.Note(ctx, plumbing.NewHash(revision.Commit))
	if err != nil {
		log.FromContext(ctx).Error(err, "cannot read the note of a commit", "revision", revision.String())
	}
	if note = excerpt.Bytes(strings.TrimSpace(note), maxNote); note != "" {
		metadata[meta.CommitNoteKey] = note
	}
	return metadata, nil
}

// Pin implements pinner: it pins the commit of a revision.
func (g *GitRepository) Pin(obj *sourcev1.GitRepository, revision string) string {
	r, err := git.ParseRevision(revision)
	if err != nil {
		return ""
	}
	obj.Spec.Reference = &sourcev1.GitRepositoryRef{Branch: r.Ref, Commit: r.Commit}
	return r.String()
}

// Forget implements [Fetcher]: it removes the mirrors that no other object uses.
func (g *GitRepository) Forget(_ context.Context, obj *sourcev1.GitRepository) error {
	return g.Mirrors.Forget(string(obj.UID))
}

// removeOrphans removes, once after the start, the mirrors of objects that were deleted without their finalizer.
func (g *GitRepository) removeOrphans(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hasRemovedOrphans {
		return nil
	}
	var all sourcev1.GitRepositoryList
	if err := g.Objects.List(ctx, &all); err != nil {
		return err
	}
	exists := map[string]bool{}
	for i := range all.Items {
		exists[string(all.Items[i].UID)] = true
	}
	isUsed := func(owner string) bool { return exists[owner] || strings.HasPrefix(owner, git.WriterPrefix) }
	if err := g.Mirrors.Collect(isUsed); err != nil {
		return fault.New(meta.StorageOperationFailedReason, "cannot remove the mirrors of deleted GitRepositories").
			Because(err)
	}
	g.hasRemovedOrphans = true
	return nil
}

// treeOptions returns which part of a commit the artifact contains.
func treeOptions(obj *sourcev1.GitRepository) git.Options {
	return git.Options{Ignore: obj.Spec.Ignore, Directories: obj.Spec.SparseCheckout,
		Submodules: obj.Spec.RecurseSubmodules}
}

// contentKey distinguishes artifacts of the same revision.
func contentKey(obj *sourcev1.GitRepository, included []*meta.Artifact) string {
	parts := []string{ptr.Deref(obj.Spec.Ignore, "")}
	if obj.Spec.RecurseSubmodules {
		parts = append(parts, "submodules")
	}
	parts = append(parts, obj.Spec.SparseCheckout...)
	for i, a := range included {
		parts = append(parts, obj.Spec.Include[i].FromPath, includeTo(obj.Spec.Include[i]), a.Digest)
	}
	return strings.Join(parts, "\x00")
}
