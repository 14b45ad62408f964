// Package automate is the controller of ImageUpdateAutomations: it commits the images that policies choose to git.
// Package change finds the values to change, commits and pushes; this package decides when.
package automate

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/image/change"
	"github.com/sluice-gitops/sluice/internal/image/scan"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// GroupKind identifies the kind to the kernel.
var GroupKind = schema.GroupKind{Group: imagev1.GroupVersion.Group, Kind: imagev1.ImageUpdateAutomationKind}

var (
	policyGroupKind     = schema.GroupKind{Group: imagev1.GroupVersion.Group, Kind: imagev1.ImagePolicyKind}
	repositoryGroupKind = schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: sourcev1.GitRepositoryKind}
)

// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imageupdateautomations,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imageupdateautomations,verbs=update;patch;delete
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imageupdateautomations/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imageupdateautomations/finalizers,verbs=get;create;update
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imageupdateautomations/finalizers,verbs=patch;delete
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagepolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=secrets;serviceaccounts,verbs=get;list;watch

// Automation is the domain step of the kind.
type Automation struct {
	Writers *change.Opener
	Clock   clock.WithDelayedExecution
	Edges   *reconcile.Edges
	// ResetPushBranch resets a push branch without commits of others to what is checked out, by a forced push.
	ResetPushBranch bool

	states reconcile.PerObject[state]
}

// state is what is cached for an automation between passes. All of it may be lost.
type state struct {
	scanner scan.Scanner
	batch   batch
	reverts reverts
}

// References implements [reconcile.Step]. Policies are selected by labels, so an automation refers to all policies of
// its namespace by an edge without a name.
func (a *Automation) References(obj *imagev1.ImageUpdateAutomation) []reconcile.Ref {
	source := change.SourceOf(obj)
	refs := []reconcile.Ref{
		reconcile.RefTo(repositoryGroupKind, source.Namespace, source.Name),
		reconcile.RefTo(policyGroupKind, obj.Namespace, ""),
	}
	if git := obj.Spec.GitSpec; git != nil && git.Commit.SigningKey != nil {
		refs = append(refs, reconcile.RefTo(schema.GroupKind{Kind: "Secret"}, obj.Namespace,
			git.Commit.SigningKey.SecretRef.Name))
	}
	if r := obj.Spec.PullRequest; r != nil && r.SecretRef != nil {
		refs = append(refs, reconcile.RefTo(schema.GroupKind{Kind: "Secret"}, obj.Namespace, r.SecretRef.Name))
	}
	return refs
}

// ObservePolicies enqueues the automations of a namespace when the chosen image or the labels of a policy change.
func ObservePolicies(ctx context.Context, e *reconcile.Edges, c cache.Cache) error {
	return reconcile.ObserveAs(ctx, e, c, &imagev1.ImagePolicy{}, func(p *imagev1.ImagePolicy) reconcile.Ref {
		return reconcile.RefTo(policyGroupKind, p.Namespace, "")
	}, func(before, after *imagev1.ImagePolicy) bool {
		return change.LatestImage(before) != change.LatestImage(after) || !maps.Equal(before.Labels, after.Labels)
	})
}

// Reconcile implements [reconcile.Step]: it commits the images that policies choose.
func (a *Automation) Reconcile(ctx context.Context,
	pass *reconcile.Pass[*imagev1.ImageUpdateAutomation]) reconcile.Outcome {
	obj := pass.Object
	obj.Status.LastAutomationRunTime = &meta.Time{Time: a.Clock.Now()}
	writer, err := a.Writers.Open(ctx, obj,
		change.Options{Owner: string(obj.UID), ResetPushBranch: a.ResetPushBranch})
	if err != nil {
		return failed(err)
	}
	ctx, cancel := context.WithTimeout(ctx, writer.Timeout)
	defer cancel()
	r := &run{automation: a, pass: pass, writer: writer, state: a.states.Of(obj.UID, func() *state { return &state{} })}
	fresh := pass.Requested || obj.Status.ObservedGeneration != obj.Generation
	if fresh {
		r.state.reverts.reset()
	}
	err = change.RetryRaces(func(try int) error { return r.update(ctx, fresh || try > 0) })
	if err == nil {
		obj.Status.ObservedPolicies = writer.Selection.Observed
	}
	return r.outcome(err)
}

// outcome returns the outcome of a pass, with an event for each commit.
func (r *run) outcome(err error) reconcile.Outcome {
	var o reconcile.Outcome
	switch {
	case err != nil:
		o = failed(err)
	case r.batchWait > 0:
		o = reconcile.Progressing(r.batchWait, "waiting %s for more image updates to include in the same commit",
			r.batchWait.Round(time.Second))
	default:
		o = reconcile.Ready(meta.SucceededReason, "%s",
			strings.Join(append([]string{"repository up-to-date"}, r.problems...), "; "))
		if len(r.pushed) == 0 {
			o = o.Unchanged()
		}
	}
	for _, p := range r.pushed {
		o = o.Note(meta.SucceededReason, "%s", p.Message).WithMetadata("revision", p.Revision)
	}
	return o
}

// failed returns the outcome of an error. A source that does not exist is waited for.
func failed(err error) reconcile.Outcome {
	if missing := new(change.SourceNotFoundError); errors.As(err, &missing) {
		return reconcile.Waiting(imagev1.SourceManagerFailedReason, "%s", missing)
	}
	return reconcile.Failed(err)
}

// Finalize implements [reconcile.Step]: it deletes the mirror if no other object uses it.
func (a *Automation) Finalize(_ context.Context, obj *imagev1.ImageUpdateAutomation) error {
	if s := a.states.Remove(obj.UID); s != nil {
		s.batch.reset()
	}
	return a.Writers.Release(string(obj.UID))
}

// Leave implements [reconcile.Leaver].
func (a *Automation) Leave(obj *imagev1.ImageUpdateAutomation) {
	if err := a.Finalize(context.Background(), obj); err != nil {
		log.Log.Error(err, "cannot remove the mirror of an automation of another process", "namespace", obj.Namespace,
			"name", obj.Name)
	}
}
