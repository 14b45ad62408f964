// Package source holds the controllers of the source kinds: each joins a fetcher to the artifact store.
// Fetching, verifying and packaging live in the packages below; here is only what a kind does in which order.
package source

import (
	"context"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/access"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/excerpt"
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

// GitRepository fetches the kind: it resolves the reference, brings a mirror to it, verifies it, and
// completes it by what it includes.
type GitRepository struct {
	Access  *access.Git
	Objects client.Reader // the cache: other GitRepositories
	Store   *artifact.Store
	Mirrors *git.Mirrors
	Clock   clock.PassiveClock

	mu   sync.Mutex
	tidy bool // whether mirrors of objects that are gone were removed since the start
}

// References lists what the repository builds on.
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

// Fetch brings the mirror to the revision that the reference points at, and verifies it.
func (g *GitRepository) Fetch(ctx context.Context, pass *reconcile.Pass[*sourcev1.GitRepository]) (*Revision, error) {
	obj := pass.Object
	if err := g.removeOrphans(ctx); err != nil {
		return nil, In(sourcev1.StorageOperationFailedCondition, err)
	}
	view := g.Mirrors.View(string(obj.UID))
	view.Admit = func(r git.Revision) error { return pass.Admit(r.String()) }
	revision, err := g.update(ctx, pass, view)
	if revision.Commit != "" {
		markOutdated(obj, revision.String())
	}
	if err == nil {
		err = view.Admit(revision)
	}
	if err != nil {
		return nil, err
	}
	if err := g.verify(ctx, obj, view, revision); err != nil {
		return nil, err
	}
	included, err := g.included(ctx, obj)
	if err != nil {
		return nil, In(sourcev1.IncludeUnavailableCondition, err)
	}
	put := func(ctx context.Context, key artifact.Key, current *meta.Artifact) (*meta.Artifact, error) {
		tree, err := view.Tree(ctx, revision, options(obj))
		if err != nil {
			return nil, In(sourcev1.FetchFailedCondition, err)
		}
		if tree, err = g.compose(obj, tree, included); err != nil {
			return nil, In(sourcev1.IncludeUnavailableCondition, err)
		}
		a, err := g.Store.Put(ctx, key, tree, revision.String(), current)
		if err != nil {
			return nil, err
		}
		commit, err := view.About(revision)
		if err != nil {
			return nil, In(sourcev1.FetchFailedCondition, err)
		}
		a.Metadata = map[string]string{
			meta.RepositoryURLKey: fault.RedactURL(obj.Spec.URL), meta.CommitAuthorKey: commit.Author,
			meta.CommitSubjectKey: commit.Subject,
		}
		if note := g.note(ctx, view, revision); note != "" {
			a.Metadata[meta.CommitNoteKey] = note
		}
		observe(obj, included)
		return a, nil
	}
	return &Revision{Name: revision.String(), Content: contentKey(obj, included), Put: put}, nil
}

// maxNote bounds, in bytes, the note of a commit that the status keeps.
const maxNote = 4 << 10

// note is what refs/notes/sluice says of a commit. It comes with the commit; one that cannot be read is no
// reason to hold the commit back.
func (g *GitRepository) note(ctx context.Context, view *git.View, revision git.Revision) string {
	note, err := view.Note(ctx, plumbing.NewHash(revision.Commit))
	if err != nil {
		log.FromContext(ctx).Error(err, "cannot read the note of a commit", "revision", revision.String())
	}
	return excerpt.Bytes(strings.TrimSpace(note), maxNote)
}

// update resolves the reference and brings the mirror to it; nothing travels when it holds the revision already.
func (g *GitRepository) update(ctx context.Context, pass *reconcile.Pass[*sourcev1.GitRepository],
	view *git.View) (git.Revision, error) {
	obj := pass.Object
	if err := refuseAccessFrom(obj.Spec.AccessFrom); err != nil {
		return git.Revision{}, err
	}
	remote, err := g.Access.Remote(ctx, obj)
	if err != nil {
		return git.Revision{}, err
	}
	fresh := pass.Requested || obj.Status.ObservedGeneration != obj.Generation
	return view.Update(ctx, remote, access.GitReference(obj.Spec.Reference), fresh)
}

// Pin makes the commit of a revision the one that counts.
func (g *GitRepository) Pin(obj *sourcev1.GitRepository, revision string) string {
	r, err := git.ParseRevision(revision)
	if err != nil {
		return ""
	}
	obj.Spec.Reference = &sourcev1.GitRepositoryRef{Branch: r.Ref, Commit: r.Commit}
	return r.String()
}

// Forget removes the mirrors that nobody else uses.
func (g *GitRepository) Forget(_ context.Context, obj *sourcev1.GitRepository) error {
	return g.Mirrors.Forget(string(obj.UID))
}

// removeOrphans removes, once after the start, the mirrors of objects that were deleted while no one was
// there to see it.
func (g *GitRepository) removeOrphans(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tidy {
		return nil
	}
	var all sourcev1.GitRepositoryList
	if err := g.Objects.List(ctx, &all); err != nil {
		return err
	}
	alive := map[string]bool{}
	for i := range all.Items {
		alive[string(all.Items[i].UID)] = true
	}
	if err := g.Mirrors.Collect(func(owner string) bool {
		return alive[owner] ||
			strings.HasPrefix(owner, git.WriterPrefix)
	}); err != nil {
		return fault.New(meta.StorageOperationFailedReason, "cannot remove the mirrors of deleted repositories").
			Because(err)
	}
	g.tidy = true
	return nil
}

// options say what the artifact is made of.
func options(obj *sourcev1.GitRepository) git.Options {
	return git.Options{Ignore: obj.Spec.Ignore, Directories: obj.Spec.SparseCheckout,
		Submodules: obj.Spec.RecurseSubmodules}
}

// contentKey tells artifacts of one revision apart.
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

// observe notes what the artifact was made of.
func observe(obj *sourcev1.GitRepository, included []*meta.Artifact) {
	obj.Status.ObservedIgnore = obj.Spec.Ignore
	obj.Status.ObservedRecurseSubmodules = obj.Spec.RecurseSubmodules
	obj.Status.ObservedSparseCheckout = obj.Spec.SparseCheckout
	obj.Status.ObservedInclude = obj.Spec.Include
	obj.Status.IncludedArtifacts = included
}
