package kustomization

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/build/remotebase"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/limits/lru"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/source/access"
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

	states reconcile.PerObject[state]

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

// Reconcile makes the cluster match the source. It finds what the source has now, asks the gates what it may do, and
// does the steps of that mode.
func (c *Controller) Reconcile(ctx context.Context,
	pass *reconcile.Pass[*kustomizev1.Kustomization]) reconcile.Outcome {
	r := &run{Controller: c, pass: pass, obj: pass.Object, state: c.stateOf(pass.Object),
		report: rollout.Report{Owner: refOf(pass.Object)}}
	outcome := rollout.Do(ctx, r.checkSpec, r.findSource, r.awaitOwnSource)
	if outcome == nil {
		r.mode, outcome = r.admit(ctx)
	}
	if outcome == nil {
		outcome = rollout.Do(ctx, r.steps()...)
	}
	return *outcome
}

// run is one pass of a Kustomization. Its steps fill in the fields from top to bottom.
type run struct {
	*Controller
	pass   *reconcile.Pass[*kustomizev1.Kustomization]
	obj    *kustomizev1.Kustomization
	state  *state
	report rollout.Report

	source   *meta.Artifact // the newest one until the pass is admitted, then what the pass works on
	proposal *proposal      // what the newest artifact would change
	mode     mode
	pending  *reconcile.Outcome // of a pass that watches what it has while gates hold another change
	target   *rollout.Target
	inputs   *inputs
	built    *build.Result // nil if what was applied is current
	isDrift  bool          // the build was applied before, so that all differences are drift
	worked   bool          // something was built or applied
	pruned   []apply.Change
	live     string // of the history, once all is applied and healthy
}

// steps returns what a pass does once it is admitted. The last step always has an outcome.
func (r *run) steps() []rollout.Step {
	switch r.mode {
	case modeHold:
		return []rollout.Step{r.hold, r.connect, r.begin, r.checkHealth, r.succeed}
	case modeHealthOnly:
		return []rollout.Step{r.connect, r.begin, r.reportOwners, r.checkHealth, r.succeed}
	case modeApply, modeRevert:
	}
	return []rollout.Step{r.connect, r.begin, r.keepHealthy, r.readInputs, r.build, r.apply, r.retain,
		r.reportOwners, r.checkHealth, r.succeed}
}

// connect finds the cluster and the account to apply with.
func (r *run) connect(ctx context.Context) *reconcile.Outcome {
	if r.target != nil {
		return nil // drift was corrected
	}
	var err error
	r.target, err = r.Clusters.Target(ctx, refOf(r.obj), r.destination(r.obj))
	return rollout.Stop(err)
}

// begin records that work on the revision has started.
func (r *run) begin(context.Context) *reconcile.Outcome {
	if r.state.started.IsZero() || r.obj.Status.LastAttemptedRevision != r.source.Revision {
		r.state.started = r.Clock.Now()
	}
	r.obj.Status.LastAttemptedRevision = r.source.Revision
	ref := r.obj.Spec.SourceRef
	r.state.health.Cancel(r.obj, r.source.Revision, fmt.Sprintf("%s/%s/%s", ref.Kind,
		cmp.Or(ref.Namespace, r.obj.Namespace), ref.Name), &r.report)
	return nil
}

// destination returns the cluster and the identity that a Kustomization applies with.
func (c *Controller) destination(obj *kustomizev1.Kustomization) rollout.Destination {
	return rollout.Destination{KubeConfig: obj.Spec.KubeConfig,
		ServiceAccount: cmp.Or(obj.Spec.ServiceAccountName, c.Options.DefaultServiceAccount)}
}

func refOf(obj *kustomizev1.Kustomization) reconcile.Ref {
	return reconcile.RefTo(GroupKind, obj.Namespace, obj.Name)
}
