package kustomization

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/access"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build/remotebase"
	"github.com/sluice-gitops/sluice/internal/lru"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/tracing"
)

// GroupKind identifies the kind to the kernel.
var GroupKind = schema.GroupKind{Group: kustomizev1.GroupVersion.Group, Kind: kustomizev1.KustomizationKind}

// +kubebuilder:rbac:groups=kustomize.toolkit.fluxcd.io,resources=kustomizations,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=kustomize.toolkit.fluxcd.io,resources=kustomizations,verbs=update;patch;delete
// +kubebuilder:rbac:groups=kustomize.toolkit.fluxcd.io,resources=kustomizations/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=kustomize.toolkit.fluxcd.io,resources=kustomizations/finalizers,verbs=get;create;update
// +kubebuilder:rbac:groups=kustomize.toolkit.fluxcd.io,resources=kustomizations/finalizers,verbs=patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories;ocirepositories,verbs=get
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=buckets;externalartifacts,verbs=get
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories;ocirepositories,verbs=list
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=buckets;externalartifacts,verbs=list
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories;ocirepositories,verbs=watch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=buckets;externalartifacts,verbs=watch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories/status;ocirepositories/status,verbs=get
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=buckets/status;externalartifacts/status,verbs=get
// +kubebuilder:rbac:groups="",resources=configmaps;secrets;serviceaccounts,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=serviceaccounts/token,verbs=create
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch

// Controller reconciles Kustomizations. It implements [reconcile.Step].
type Controller struct {
	Client    client.Reader // cached, but current where a pass needs it
	Cache     client.Reader // never waits for the API server
	Live      client.Reader // not cached, also to keep Secrets out of memory
	Artifacts *artifact.Fetcher
	Applied   *artifact.AppliedStore // of objects behind gates
	Clusters  *rollout.Clusters
	Removal   rollout.Removal
	// Promotable keeps what objects wait for at gates that promote revisions.
	Promotable *artifact.PromotableStore
	Events     reconcile.Events // for events during deletion; other events are part of outcomes
	Clock      clock.PassiveClock
	Options    Options

	mu     sync.Mutex
	states map[types.UID]*state

	declared  lru.Cache[declaration, []apply.Ref] // what successors build
	deletions rollout.Deletions
}

// Options are set by flags.
type Options struct {
	NoCrossNamespaceRefs  bool
	DefaultServiceAccount string
	NoFailFast            bool // health checks wait for the timeout even if an object has failed
	AdditiveReadyExpr     bool // dependencies with a readyExpr must also be Ready
	Decryption            access.Decryption
	// FetchManifest and FetchBase fetch what kustomizations refer to by URL. If they are nil, it is refused.
	FetchManifest func(ctx context.Context, url string) ([]byte, error)
	FetchBase     func(ctx context.Context, base remotebase.Base) (*artifact.Tree, error)
	// StrictSubstitutions rejects variables that are not set and have no default.
	StrictSubstitutions bool
	// StrictFields rejects objects of built-in kinds with unknown fields.
	StrictFields bool
	// Resync is the interval at which all objects are dry-run again even if no change was observed.
	Resync time.Duration
}

// References implements [reconcile.Step].
func (c *Controller) References(obj *kustomizev1.Kustomization) []reconcile.Ref {
	s := obj.Spec.SourceRef
	refs := []reconcile.Ref{reconcile.RefTo(sourceGroupKind(s.Kind), cmp.Or(s.Namespace, obj.Namespace), s.Name)}
	refs = append(refs, c.dependencies().Refs(obj)...)
	if k := obj.Spec.KubeConfig; k != nil && k.SecretRef != nil {
		refs = append(refs, reconcile.RefTo(schema.GroupKind{Kind: "Secret"}, obj.Namespace, k.SecretRef.Name))
	} else if k != nil && k.ConfigMapRef != nil {
		refs = append(refs, reconcile.RefTo(schema.GroupKind{Kind: "ConfigMap"}, obj.Namespace, k.ConfigMapRef.Name))
	}
	return append(refs, inputRefs(obj)...)
}

// Reconcile makes the cluster match the source. Its steps are: check the spec, find the source, ask the gates, check
// dependencies, connect to the cluster, build, apply, prune, check health, report. A build is skipped if its files and
// settings did not change, and an apply if neither the build nor the live objects changed.
func (c *Controller) Reconcile(ctx context.Context,
	pass *reconcile.Pass[*kustomizev1.Kustomization]) reconcile.Outcome {
	if err := c.checkSpec(pass.Object); err != nil {
		return reconcile.Failed(err)
	}
	source, outcome := c.source(ctx, pass.Object)
	if outcome == nil {
		outcome = c.awaitOwnSource(ctx, pass.Object)
	}
	if outcome != nil {
		return *outcome
	}
	work, outcome := c.admit(ctx, pass, source)
	if outcome != nil {
		return *outcome
	}
	target, err := c.Clusters.Target(ctx, refOf(pass.Object), c.destination(pass.Object))
	if err != nil {
		return reconcile.Failed(err)
	}
	r := &run{
		Controller: c, pass: pass, obj: pass.Object, source: work.source, target: target,
		state: c.stateOf(pass.Object), report: rollout.Report{Owner: refOf(pass.Object)},
	}
	r.begin()
	if r.reverts = work.reverts; !work.healthOnly {
		r.pin(ctx)
		r.reportReverted()
		if err := r.deploy(ctx); err != nil {
			return r.notDeployed(err)
		}
		r.retain(ctx)
	}
	r.reportContentions()
	r.reportClaims()
	done := tracing.Begin(ctx, "health")
	progressing, err := r.checkHealth(ctx)
	done(err)
	if err != nil {
		return r.unhealthy(err)
	}
	if progressing != nil {
		return r.outcome(*progressing)
	}
	return r.succeeded()
}

// reportClaims reports objects that other owners declare as well. The Kustomization no longer declares objects that it
// retains for others.
func (r *run) reportClaims() {
	inventory := r.obj.Status.Inventory
	if retained := r.state.apply.retained; len(retained) > 0 {
		inventory = rollout.InventoryStatus(rollout.Inventory(inventory).Without(retained))
	}
	r.Clusters.Claims.Report(r.obj, &r.report, r.target, inventory, r.state.build.declared.Yields)
}

// run is one pass of a Kustomization that was admitted.
type run struct {
	*Controller
	pass    *reconcile.Pass[*kustomizev1.Kustomization]
	obj     *kustomizev1.Kustomization
	source  *meta.Artifact
	target  *rollout.Target
	state   *state
	report  rollout.Report
	worked  bool // something was built or applied
	reverts bool // it goes back to what was healthy before
	held    bool // gates hold the Kustomization: only drift is corrected
	pruned  []apply.Change
}

// begin records that work on the revision has started.
func (r *run) begin() {
	if r.state.started.IsZero() || r.obj.Status.LastAttemptedRevision != r.source.Revision {
		r.state.started = r.Clock.Now()
	}
	r.obj.Status.LastAttemptedRevision = r.source.Revision
	ref := r.obj.Spec.SourceRef
	r.state.health.Cancel(r.obj, r.source.Revision, fmt.Sprintf("%s/%s/%s", ref.Kind,
		cmp.Or(ref.Namespace, r.obj.Namespace), ref.Name), &r.report)
}

// deploy builds the source and makes the cluster match it, as far as something changed.
func (r *run) deploy(ctx context.Context) error {
	in, err := r.readInputs(ctx, r.obj)
	if err != nil {
		return err
	}
	done := tracing.Begin(ctx, "build")
	built, err := r.build(ctx, in)
	done(in.redact(err))
	if err != nil || built == nil {
		return err
	}
	times := &kustomizev1.StepTimes{Started: meta.TimeOf(r.state.started), Built: meta.TimeOf(r.Clock.Now())}
	done = tracing.Begin(ctx, "apply and prune")
	err = r.correct(ctx, built)
	done(in.redact(err))
	if err == nil {
		applied := meta.TimeOf(r.Clock.Now())
		times.Applied = &applied
	}
	if !r.report.Corrected {
		r.state.times = times
	}
	return r.destination(r.obj).ExplainMissingAccount(ctx, r.Live, r.obj.Namespace, in.redact(err))
}

// destination returns the cluster and the identity that a Kustomization applies with.
func (c *Controller) destination(obj *kustomizev1.Kustomization) rollout.Destination {
	return rollout.Destination{KubeConfig: obj.Spec.KubeConfig,
		ServiceAccount: cmp.Or(obj.Spec.ServiceAccountName, c.Options.DefaultServiceAccount)}
}

func refOf(obj *kustomizev1.Kustomization) reconcile.Ref {
	return reconcile.RefTo(GroupKind, obj.Namespace, obj.Name)
}
