package helmrelease

import (
	"cmp"
	"context"
	"strings"
	"time"

	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// GroupKind identifies the kind to the kernel.
var GroupKind = schema.GroupKind{Group: helmv2.GroupVersion.Group, Kind: helmv2.HelmReleaseKind}

// +kubebuilder:rbac:groups=helm.toolkit.fluxcd.io,resources=helmreleases,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=helm.toolkit.fluxcd.io,resources=helmreleases,verbs=update;patch;delete
// +kubebuilder:rbac:groups=helm.toolkit.fluxcd.io,resources=helmreleases/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=helm.toolkit.fluxcd.io,resources=helmreleases/finalizers,verbs=get;create;update
// +kubebuilder:rbac:groups=helm.toolkit.fluxcd.io,resources=helmreleases/finalizers,verbs=patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmcharts;ocirepositories,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmcharts;ocirepositories,verbs=create;update
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmcharts;ocirepositories,verbs=patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=externalartifacts;gitrepositories;buckets,verbs=get
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=externalartifacts;gitrepositories;buckets,verbs=list
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=externalartifacts;gitrepositories;buckets,verbs=watch
// +kubebuilder:rbac:groups="",resources=configmaps;secrets;serviceaccounts,verbs=get;list;watch

// Controller reconciles HelmReleases. It implements [reconcile.Step].
type Controller struct {
	Client    client.Client // cached
	Live      client.Reader // not cached, also to keep Secrets out of memory
	Artifacts *artifact.Fetcher
	Applied   *artifact.AppliedStore // what was released behind gates
	Clusters  *rollout.Clusters
	Removal   rollout.Removal
	Renderer  *render.Renderer
	Events    reconcile.Events // for events during deletion; other events are part of outcomes
	Clock     clock.PassiveClock
	Options   Options

	states reconcile.PerObject[state]

	stored rollout.PerTarget[*storedWatch]
	served rollout.PerTarget[*served]
}

// Options are set by flags.
type Options struct {
	NoCrossNamespaceRefs  bool
	DefaultServiceAccount string
	NoFailFast            bool // waits continue until the timeout even if an object has failed
	AdditiveReadyExpr     bool // dependencies with a readyExpr must also be Ready
	Decryption            access.Decryption
	AllowDNS              bool // templates may resolve names
	NoDigestTracking      bool // chart versions get no suffix with the digest of the artifact
	RetryOnFailure        bool // the default strategy is RetryOnFailure
	Helm3Defaults         bool // client-side apply, legacy wait and no post-rendering of hooks by default
	// Resync is the interval at which all objects are dry-run again even if no change was observed.
	Resync time.Duration
}

// References implements [reconcile.Step].
func (c *Controller) References(obj *helmv2.HelmRelease) []reconcile.Ref {
	refs := sourceRefs(obj)
	refs = append(refs, c.dependencies().Refs(obj)...)
	if k := obj.Spec.KubeConfig; k != nil && k.SecretRef != nil {
		refs = append(refs, reconcile.RefTo(schema.GroupKind{Kind: "Secret"}, obj.Namespace, k.SecretRef.Name))
	} else if k != nil && k.ConfigMapRef != nil {
		refs = append(refs, reconcile.RefTo(schema.GroupKind{Kind: "ConfigMap"}, obj.Namespace, k.ConfigMapRef.Name))
	}
	for _, v := range obj.Spec.ValuesFrom {
		gk := schema.GroupKind{Kind: v.Kind}
		if v.IsFile() {
			gk.Group = sourceGroup
		}
		refs = append(refs, reconcile.RefTo(gk, cmp.Or(v.Namespace, obj.Namespace), v.Name))
	}
	if d := obj.Spec.Decryption; d != nil && d.SecretRef != nil {
		refs = append(refs, reconcile.RefTo(schema.GroupKind{Kind: "Secret"}, obj.Namespace, d.SecretRef.Name))
	}
	return refs
}

// Reconcile makes the release match the spec. It finds the chart and the values, asks the gates what it may do, and
// does the steps of that mode.
func (c *Controller) Reconcile(ctx context.Context, pass *reconcile.Pass[*helmv2.HelmRelease]) reconcile.Outcome {
	r := c.newRun(pass)
	defer r.releaseMemory()
	outcome := rollout.Do(ctx, r.checkSpec, r.findDesired)
	if outcome == nil {
		r.mode, outcome = r.admit(ctx)
	}
	if outcome == nil {
		outcome = rollout.Do(ctx, r.steps()...)
	}
	return *outcome
}

// run is one pass of a HelmRelease. Its steps fill in the fields from top to bottom.
type run struct {
	*Controller
	pass   *reconcile.Pass[*helmv2.HelmRelease]
	obj    *helmv2.HelmRelease
	state  *state
	report rollout.Report

	*desired
	propose func() (*rollout.Proposal, error) // what the desired release would change
	mode    mode
	target  *rollout.Target
	storage *releaseStorage
	// found is what is stored of a HelmRelease that must go back to the release revertTo.
	found    *observed
	revertTo *helmrelease.Release
	veil     *redact.Veil // of the objects of the release
	forced   bool         // an action was requested by annotation, and not done yet
	worked   bool         // an action was done
	// progress is the outcome of a pass that waits for the health of objects.
	progress *reconcile.Outcome

	leases []*guard.Lease // of the memory for values and rendered charts
	memory *guard.Lease   // of the memory for the stored release
}

func (c *Controller) newRun(pass *reconcile.Pass[*helmv2.HelmRelease]) *run {
	return &run{Controller: c, pass: pass, obj: pass.Object, state: c.states.Of(pass.Object.UID, newState),
		report: rollout.Report{Owner: refOf(pass.Object)}}
}

// steps returns what a pass does once it is admitted. The last step always has an outcome.
func (r *run) steps() []rollout.Step {
	switch r.mode {
	case modeHold:
		return []rollout.Step{r.hold}
	case modeRevert:
		return []rollout.Step{r.connect, r.revert}
	case modeRelease:
	}
	return []rollout.Step{r.connect, r.reportValues, r.handleRequests, r.release}
}

// connect finds the cluster and what is stored of releases there.
func (r *run) connect(ctx context.Context) *reconcile.Outcome { return rollout.Stop(r.open(ctx)) }

func (r *run) open(ctx context.Context) error {
	if r.storage != nil {
		return nil // it was opened to find out whether the release must go back
	}
	target, err := r.Clusters.Target(ctx, refOf(r.obj), r.destination(r.obj))
	if err != nil {
		return err
	}
	r.target, r.veil = target, r.newVeil(ctx)
	r.setTarget()
	r.storage, err = openStorage(target, r.obj.GetStorageNamespace())
	return err
}

// reportValues reports warnings about the values, once.
func (r *run) reportValues(context.Context) *reconcile.Outcome {
	text := strings.Join(r.warnings, "\n")
	if text != "" && text != r.state.valueWarnings {
		r.report.Warn(meta.AppliedWithWarningsReason, text)
	}
	r.state.valueWarnings = text
	return nil
}

// handleRequests handles the annotations forceAt and resetAt, which count together with a reconcile request of the same
// value.
func (r *run) handleRequests(context.Context) *reconcile.Outcome {
	a := r.obj.Annotations
	requested := a[meta.ReconcileRequestAnnotation]
	if v := a[helmv2.ResetRequestAnnotation]; v != "" && v == requested && v != r.obj.Status.LastHandledResetAt {
		r.clearFailures()
		r.obj.Status.LastHandledResetAt = v
	}
	if v := a[helmv2.ForceRequestAnnotation]; v != "" && v == requested && v != r.obj.Status.LastHandledForceAt {
		r.forced = true
		r.obj.Status.LastHandledForceAt = v
	}
	return nil
}

// destination returns the cluster and the identity that a HelmRelease releases with.
func (c *Controller) destination(obj *helmv2.HelmRelease) rollout.Destination {
	return rollout.Destination{KubeConfig: obj.Spec.KubeConfig,
		ServiceAccount: cmp.Or(obj.Spec.ServiceAccountName, c.Options.DefaultServiceAccount)}
}

// dependencies returns the check of spec.dependsOn.
func (c *Controller) dependencies() *rollout.Dependencies[*helmv2.HelmRelease] {
	return &rollout.Dependencies[*helmv2.HelmRelease]{
		Kind:              GroupKind,
		Reader:            c.Client,
		New:               func() *helmv2.HelmRelease { return &helmv2.HelmRelease{} },
		DependsOn:         func(r *helmv2.HelmRelease) []meta.DependencyReference { return r.Spec.DependsOn },
		Policy:            c.referencePolicy(),
		Account:           func(r *helmv2.HelmRelease) string { return c.destination(r).ServiceAccount },
		Watch:             c.Clusters.Dependencies,
		AdditiveReadyExpr: c.Options.AdditiveReadyExpr,
	}
}

func (c *Controller) referencePolicy() rollout.ReferencePolicy {
	return rollout.ReferencePolicy{NoCrossNamespace: c.Options.NoCrossNamespaceRefs}
}

func refOf(obj *helmv2.HelmRelease) reconcile.Ref {
	return reconcile.RefTo(GroupKind, obj.Namespace, obj.Name)
}
