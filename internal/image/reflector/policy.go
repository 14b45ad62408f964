package reflector

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/image/store"
	"github.com/sluice-gitops/sluice/internal/limits/version"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Policies is the domain step of ImagePolicies: it chooses the latest image of a repository.
type Policies struct {
	Objects              client.Reader // the cache
	Namespaces           client.Reader // the API server, not the cache
	Repositories         *Repositories
	Views                *Views
	NoCrossNamespaceRefs bool
}

// References implements [reconcile.Step]: a scan that finds changes enqueues the policy.
func (p *Policies) References(obj *imagev1.ImagePolicy) []reconcile.Ref {
	key := repositoryOf(obj)
	return []reconcile.Ref{reconcile.RefTo(RepositoryGroupKind, key.Namespace, key.Name)}
}

// Reconcile implements [reconcile.Step]: it chooses the first tag in the order of the policy.
func (p *Policies) Reconcile(ctx context.Context, pass *reconcile.Pass[*imagev1.ImagePolicy]) reconcile.Outcome {
	obj := pass.Object
	compiled, err := policy.New(obj.Spec)
	if err != nil {
		return reconcile.Failed(err)
	}
	repo, err := p.repository(ctx, obj)
	if err != nil {
		return reconcile.Failed(err)
	}
	if repo == nil {
		return reconcile.Waiting(meta.DependencyNotReadyReason, "ImageRepository '%s' not found", repositoryOf(obj))
	}
	view, err := p.Views.Of(ctx, keyOf(repo), obj.Spec, compiled)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return p.unscanned(obj, repo)
	case err != nil:
		return reconcile.Failed(err)
	case view.Unknown > 0:
		p.Repositories.Edges.Enqueue(refOf(repo))
		return reconcile.Waiting(meta.DependencyNotReadyReason,
			"waiting for details of %d tags of ImageRepository '%s'", view.Unknown, keyOf(repo))
	case len(view.Tags) == 0:
		return reconcile.Waiting(meta.FailedReason,
			"no tag matches %s (%s). Push one, or correct the policy; the tags are those of ImageRepository '%s'",
			criteria(&obj.Spec), version.Checked(view.Total), keyOf(repo))
	}
	latest := imagev1.ImageRef{Name: repo.Spec.Image, Tag: view.Tags[0].Name}
	if latest.Digest, err = p.digest(ctx, obj, repo, latest); err != nil {
		return reconcile.Failed(err)
	}
	before := obj.Status.LatestRef
	obj.SetLatest(latest)
	o := reconcile.Ready(meta.SucceededReason, "latest image of '%s' is '%s'", repo.Spec.Image, latest).
		WithMetadata("revision", latest.String())
	if before != nil && *before == latest {
		return o.Unchanged()
	}
	return o
}

// criteria names what tags have to match.
func criteria(spec *imagev1.ImagePolicySpec) string {
	if versions := spec.Policy.SemVer; versions != nil && spec.FilterTags == nil && spec.Policy.CEL == nil {
		return fmt.Sprintf("semver '%s'", versions.Range)
	}
	return "spec.filterTags and spec.policy"
}

// unscanned returns the outcome if the tags of the repository are not in the store. The latest image is kept
// if the repository was scanned before, and a scan is requested.
func (p *Policies) unscanned(obj *imagev1.ImagePolicy, repo *imagev1.ImageRepository) reconcile.Outcome {
	if revisionOf(repo) == "" || obj.Status.LatestRef == nil {
		return reconcile.Waiting(meta.DependencyNotReadyReason, "ImageRepository '%s' has not been scanned yet",
			keyOf(repo))
	}
	p.Repositories.Edges.Enqueue(refOf(repo))
	return reconcile.Ready(meta.SucceededReason, "latest image of '%s' is '%s'", repo.Spec.Image,
		*obj.Status.LatestRef).Unchanged()
}

// Finalize implements [reconcile.Step]. Cached views expire on their own.
func (p *Policies) Finalize(context.Context, *imagev1.ImagePolicy) error { return nil }

// digest returns the digest of the latest image according to spec.digestReflectionPolicy; empty if it is not reflected.
func (p *Policies) digest(ctx context.Context, obj *imagev1.ImagePolicy, repo *imagev1.ImageRepository,
	latest imagev1.ImageRef) (string, error) {
	switch obj.Spec.DigestReflectionPolicy {
	case imagev1.ReflectIfNotPresent:
		if before := obj.Status.LatestRef; before != nil && before.Digest != "" && before.Name == latest.Name &&
			before.Tag == latest.Tag {
			return before.Digest, nil
		}
	case imagev1.ReflectAlways:
		if obj.Spec.Interval == nil { // allowed by older API versions
			return "", fault.New(imagev1.IntervalNotConfiguredReason, "spec.interval is not set").
				WithHint("Set it: spec.digestReflectionPolicy 'Always' requires it").Final()
		}
	default:
		return "", nil
	}
	opened, err := p.Repositories.repository(ctx, repo)
	if err != nil {
		return "", err
	}
	return opened.Current(ctx, latest.Tag)
}

// repository returns the repository of a policy; nil if it does not exist. The error is a fault if the policy
// may not use it.
func (p *Policies) repository(ctx context.Context, obj *imagev1.ImagePolicy) (*imagev1.ImageRepository, error) {
	key := repositoryOf(obj)
	if key.Namespace != obj.Namespace && p.NoCrossNamespaceRefs {
		return nil, fault.New(meta.AccessDeniedReason,
			"ImageRepository '%s' is in another namespace, and --no-cross-namespace-refs is set", key).Final()
	}
	repo := &imagev1.ImageRepository{}
	err := p.Objects.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, repo)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.New(meta.DependencyNotReadyReason, "cannot read ImageRepository '%s'", key).Because(err)
	}
	return repo, p.checkAccess(ctx, obj.Namespace, repo)
}

// checkAccess returns a fault unless policies of the namespace may use the repository.
func (p *Policies) checkAccess(ctx context.Context, namespace string, repo *imagev1.ImageRepository) error {
	if namespace == repo.Namespace {
		return nil
	}
	denied := fault.New(meta.AccessDeniedReason, "ImageRepository '%s' does not allow access from namespace '%s'",
		keyOf(repo),
		namespace).
		WithHint("Select the namespace in spec.accessFrom of the ImageRepository")
	if repo.Spec.AccessFrom == nil {
		return denied
	}
	var from corev1.Namespace
	if err := p.Namespaces.Get(ctx, client.ObjectKey{Name: namespace}, &from); err != nil {
		return denied.Because(err)
	}
	for _, s := range repo.Spec.AccessFrom.NamespaceSelectors {
		if labels.SelectorFromSet(s.MatchLabels).Matches(labels.Set(from.Labels)) {
			return nil
		}
	}
	return denied
}

func repositoryOf(obj *imagev1.ImagePolicy) store.Key {
	key := store.Key{Namespace: obj.Namespace, Name: obj.Spec.ImageRepositoryRef.Name}
	if ns := obj.Spec.ImageRepositoryRef.Namespace; ns != "" {
		key.Namespace = ns
	}
	return key
}
