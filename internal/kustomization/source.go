package kustomization

import (
	"cmp"
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

var sourceGroup = sourcev1.GroupVersion.Group

func sourceGroupKind(kind string) schema.GroupKind {
	return schema.GroupKind{Group: sourceGroup, Kind: kind}
}

// source returns the artifact to apply, or the outcome if there is none.
func (c *Controller) source(ctx context.Context, obj *kustomizev1.Kustomization) (*meta.Artifact,
	*reconcile.Outcome) {
	ref := obj.Spec.SourceRef
	key := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, obj.Namespace), Name: ref.Name}
	if err := c.referencePolicy().Check("spec.sourceRef", obj.Namespace, key.Namespace); err != nil {
		return nil, ptr.To(reconcile.Failed(err))
	}
	source := sourcev1.NewSource(ref.Kind)
	if source == nil || ref.Kind == sourcev1.HelmChartKind {
		return nil, ptr.To(reconcile.Failed(fault.New(meta.ArtifactFailedReason,
			"spec.sourceRef.kind '%s' is not supported", ref.Kind).
			WithHint("Use a GitRepository, OCIRepository, Bucket or ExternalArtifact").Final()))
	}
	err := c.Client.Get(ctx, key, source)
	switch {
	case apierrors.IsNotFound(err):
		return nil, ptr.To(reconcile.Waiting(meta.ArtifactFailedReason,
			"%s '%s' not found. Create it, or correct spec.sourceRef", ref.Kind, key))
	case err != nil:
		return nil, unreadable(ref.Kind, key, err)
	case source.GetArtifact() == nil:
		return nil, ptr.To(reconcile.Waiting(meta.ArtifactFailedReason,
			"Source artifact not found: %s '%s' has no artifact yet. See its conditions", ref.Kind, key))
	}
	return source.GetArtifact(), nil
}

// findSource finds the artifact that the source has now.
func (r *run) findSource(ctx context.Context) (outcome *reconcile.Outcome) {
	r.source, outcome = r.Controller.source(ctx, r.obj)
	return outcome
}

// signers returns the keys or identities whose signatures of an artifact its source has verified, if it still has the
// artifact. Files of included repositories are not signed by them.
func (c *Controller) signers(ctx context.Context, obj *kustomizev1.Kustomization, a *meta.Artifact) []string {
	ref := obj.Spec.SourceRef
	source := sourcev1.NewSource(ref.Kind)
	key := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, obj.Namespace), Name: ref.Name}
	err := c.Client.Get(ctx, key, source)
	if err != nil || !source.GetArtifact().HasRevision(a.Revision) || source.GetArtifact().Digest != a.Digest ||
		!apimeta.IsStatusConditionTrue(source.CommonStatus().Conditions, sourcev1.SourceVerifiedCondition) {
		return nil
	}
	switch s := source.(type) {
	case *sourcev1.GitRepository:
		if keys := s.Status.SourceVerificationFingerprint; keys != "" && len(s.Status.IncludedArtifacts) == 0 {
			return strings.Split(keys, ",")
		}
	case *sourcev1.OCIRepository:
		if signer := s.Status.SourceVerificationFingerprint; signer != "" {
			return []string{signer} // the subject of a certificate contains commas
		}
	}
	return nil
}

func unreadable(kind string, key types.NamespacedName, err error) *reconcile.Outcome {
	return ptr.To(reconcile.Failed(fault.New(meta.ArtifactFailedReason, "cannot read %s '%s'", kind, key).
		Because(err)))
}

// sourceReview is when a Kustomization looks again at its source, which fetches what a changed spec declares. A new
// artifact ends the wait at once.
const sourceReview = 5 * time.Second

// awaitOwnSource returns the outcome while the source, which the Kustomization has applied itself, does not have the
// artifact of its current spec; nil otherwise. An apply of the previous artifact would undo the change of the spec: a
// bootstrap from another repository would be reverted, or two repositories would undo each other without end. The
// source is read without a cache, as drift can be seen before the cache has the change.
func (r *run) awaitOwnSource(ctx context.Context) *reconcile.Outcome {
	key := sourceKey(r.obj)
	ref := apply.Ref{Group: sourceGroup, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name}
	source := sourcev1.NewSource(key.Kind)
	if source == nil || !rollout.Inventory(r.obj.Status.Inventory).Has(ref.Entry()) {
		return nil
	}
	name := types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
	if err := r.Live.Get(ctx, name, source); err != nil {
		return unreadable(key.Kind, name, err)
	}
	status := source.CommonStatus()
	if source.Schedule().Suspended || apimeta.IsStatusConditionTrue(status.Conditions, meta.BlockedCondition) ||
		status.ObservedGeneration == 0 || status.ObservedGeneration == source.GetGeneration() {
		return nil
	}
	return ptr.To(reconcile.Progressing(sourceReview, "%s '%s' is fetching what its changed spec declares", key.Kind,
		name))
}

// fetch returns the tree of an artifact of the object's source.
func (c *Controller) fetch(ctx context.Context, obj *kustomizev1.Kustomization, a *meta.Artifact) (*artifact.Tree,
	error) {
	if tree, err := c.Promotable.Tree(string(obj.UID), a.Digest); err == nil {
		return tree, nil
	}
	return c.Artifacts.Fetch(ctx, sourceKey(obj), *a)
}

// sourceKey returns the key of the artifacts of the object's source.
func sourceKey(obj *kustomizev1.Kustomization) artifact.Key {
	ref := obj.Spec.SourceRef
	return artifact.Key{Kind: ref.Kind, Namespace: cmp.Or(ref.Namespace, obj.Namespace), Name: ref.Name}
}

func (c *Controller) referencePolicy() rollout.ReferencePolicy {
	return rollout.ReferencePolicy{NoCrossNamespace: c.Options.NoCrossNamespaceRefs}
}

// dependencies returns the check of spec.dependsOn.
func (c *Controller) dependencies() *rollout.Dependencies[*kustomizev1.Kustomization] {
	return &rollout.Dependencies[*kustomizev1.Kustomization]{
		Kind:              GroupKind,
		Reader:            c.Client,
		New:               func() *kustomizev1.Kustomization { return &kustomizev1.Kustomization{} },
		DependsOn:         func(k *kustomizev1.Kustomization) []meta.DependencyReference { return k.Spec.DependsOn },
		Policy:            c.referencePolicy(),
		Account:           func(k *kustomizev1.Kustomization) string { return c.destination(k).ServiceAccount },
		Watch:             c.Clusters.Dependencies,
		AdditiveReadyExpr: c.Options.AdditiveReadyExpr,
	}
}

// checkDependencies returns the outcome of an object with a dependency that is not ready, or nil. Dependencies with the
// same source must have applied its revision first.
func (c *Controller) checkDependencies(ctx context.Context, obj *kustomizev1.Kustomization,
	source *meta.Artifact) *reconcile.Outcome {
	return c.dependencies().Check(ctx, obj, source.Revision, func(dependency *kustomizev1.Kustomization) bool {
		return !haveSameSource(obj, dependency) || dependency.Status.LastAppliedRevision == source.Revision ||
			c.isUnaffected(ctx, dependency, source) || c.isPassedBy(ctx, dependency, source)
	})
}

// isUnaffected reports whether a Ready Kustomization would build the same from the revision as it has applied, although
// it has not reconciled the revision yet. Dependents need not wait for it.
func (c *Controller) isUnaffected(ctx context.Context, obj *kustomizev1.Kustomization, source *meta.Artifact) bool {
	applied := c.appliedBuildOf(obj)
	if applied == nil || applied.trace == nil || applied.generation != obj.Generation {
		return false
	}
	tree, err := c.fetch(ctx, obj, source)
	return err == nil && applied.trace.Unchanged(tree)
}

// haveSameSource reports whether both build from the same source, and so have the same sequence of revisions.
func haveSameSource(a, b *kustomizev1.Kustomization) bool {
	return a.Spec.SourceRef.Kind == b.Spec.SourceRef.Kind && a.Spec.SourceRef.Name == b.Spec.SourceRef.Name &&
		cmp.Or(a.Spec.SourceRef.Namespace, a.Namespace) == cmp.Or(b.Spec.SourceRef.Namespace, b.Namespace)
}
