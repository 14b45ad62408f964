package resourceset

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/build/expand"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/fault"
	"github.com/sluice-gitops/sluice/internal/tracing"
)

// GroupKind identifies the kind to the kernel.
var GroupKind = schema.GroupKind{Group: controlplanev1.GroupVersion.Group, Kind: controlplanev1.ResourceSetKind}

// FieldManager is the field manager of the objects of ResourceSets. It is that of Flux Operator, so that objects can be
// handed over in both directions.
const FieldManager = "flux-operator"

// +kubebuilder:rbac:groups=fluxcd.controlplane.io,resources=resourcesets,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=fluxcd.controlplane.io,resources=resourcesets,verbs=update;patch;delete
// +kubebuilder:rbac:groups=fluxcd.controlplane.io,resources=resourcesets/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=fluxcd.controlplane.io,resources=resourcesets/finalizers,verbs=get;create;update
// +kubebuilder:rbac:groups=fluxcd.controlplane.io,resources=resourcesets/finalizers,verbs=patch;delete
// +kubebuilder:rbac:groups=fluxcd.controlplane.io,resources=resourcesetinputproviders,verbs=get;list;watch

// Renderer renders templates, in bounded time and memory.
type Renderer interface {
	// Expand renders what is requested. Name names the ResourceSet in messages. Faults that are not terminal are
	// retried; other errors are those of the templates or their inputs.
	Expand(ctx context.Context, name string, q expand.Request) (*expand.Result, error)
}

// Controller reconciles ResourceSets. It implements [reconcile.Step].
type Controller struct {
	Client   client.Reader // cached, but current where a pass needs it
	Live     client.Reader // not cached
	Clusters *rollout.Clusters
	Removal  rollout.Removal
	Renderer Renderer
	Events   reconcile.Events // for events during deletion; other events are part of outcomes
	Clock    clock.PassiveClock
	Options  Options

	states    reconcile.PerObject[state]
	deletions rollout.Deletions
}

// Options are set by flags.
type Options struct {
	NoCrossNamespaceRefs  bool
	DefaultServiceAccount string // not for objects in ControllerNamespace
	ControllerNamespace   string
	NoFailFast            bool // health checks wait for the timeout even if an object has failed
	StrictFields          bool // objects of built-in kinds with unknown fields are refused
	// Resync is the interval at which all objects are dry-run again even if no change was observed.
	Resync time.Duration
}

// References implements [reconcile.Step].
func (c *Controller) References(obj *controlplanev1.ResourceSet) []reconcile.Ref {
	refs := append(providerRefs(obj), c.dependencies().Refs(obj)...)
	if s := c.states.Get(obj.UID); s != nil {
		for _, from := range s.build.sources {
			refs = append(refs, from.ref())
		}
	}
	return refs
}

// Reconcile makes the cluster match the templates and their inputs. Its steps are: check the spec, check dependencies,
// read inputs, render, ask the gates, apply step by step, prune, check health, report. Templates are not rendered if
// neither they nor their inputs changed, and objects are not applied if neither they nor the live objects changed.
func (c *Controller) Reconcile(ctx context.Context,
	pass *reconcile.Pass[*controlplanev1.ResourceSet]) reconcile.Outcome {
	obj := pass.Object
	s := c.stateOf(obj)
	if err := s.spec.Of(obj, func() error { return c.dependencies().CheckSpec(obj) }); err != nil {
		return reconcile.Failed(err)
	}
	if waiting := c.checkDependencies(ctx, obj); waiting != nil {
		return *waiting
	}
	providers, waiting, err := Providers(ctx, c.Client, obj)
	if waiting != nil {
		return *waiting
	}
	r := &run{Controller: c, pass: pass, obj: obj, state: s,
		report: rollout.Report{Owner: refOf(obj), Reason: applySucceededReason}}
	r.begin()
	if err != nil {
		return r.failed(buildFailed(err))
	}
	if r.target, err = c.Clusters.Target(ctx, refOf(obj), c.destination(obj)); err != nil {
		return reconcile.Failed(err)
	}
	s.apply.setTarget(r.target)
	return r.deploy(ctx, providers)
}

// run is one pass of a ResourceSet.
type run struct {
	*Controller
	pass   *reconcile.Pass[*controlplanev1.ResourceSet]
	obj    *controlplanev1.ResourceSet
	target *rollout.Target
	state  *state
	report rollout.Report
	worked bool // something was rendered or applied

	isDrift bool            // the objects were applied before, so that all differences are drift
	applied apply.Inventory // of the last apply of the pass
	pruned  []apply.Change
}

// begin records that work has started.
func (r *run) begin() {
	if r.state.started.IsZero() {
		r.state.started = r.Clock.Now()
	}
}

// deploy renders the templates and makes the cluster match the objects, as far as something changed.
func (r *run) deploy(ctx context.Context, providers []expand.Provider) reconcile.Outcome {
	done := tracing.Begin(ctx, "render")
	built, err := r.build(ctx, providers)
	done(err)
	if err != nil {
		return r.failed(r.explain(ctx, err))
	}
	held, err := r.admit(ctx, built)
	if held != nil {
		return *held
	}
	if err == nil {
		done := tracing.Begin(ctx, "apply and prune")
		var progressing *reconcile.Outcome
		progressing, err = r.apply(ctx, built)
		done(err)
		if progressing != nil {
			return r.outcome(*progressing)
		}
	}
	if err != nil {
		return r.notDeployed(r.explain(ctx, err))
	}
	r.reportOwners()
	done = tracing.Begin(ctx, "health")
	progressing, err := r.checkHealth(ctx)
	done(err)
	switch {
	case err != nil:
		return r.unhealthy(err)
	case progressing != nil:
		return r.outcome(*progressing)
	}
	return r.succeeded()
}

// explain adds to an error why the account has no rights, if it does not exist.
func (r *run) explain(ctx context.Context, err error) error {
	return r.destination(r.obj).ExplainMissingAccount(ctx, r.Live, r.obj.Namespace, err)
}

// destination returns the identity that a ResourceSet applies with.
func (c *Controller) destination(obj *controlplanev1.ResourceSet) rollout.Destination {
	account := obj.Spec.ServiceAccountName
	if obj.Namespace != c.Options.ControllerNamespace {
		account = cmp.Or(account, c.Options.DefaultServiceAccount)
	}
	return rollout.Destination{ServiceAccount: account}
}

func refOf(obj *controlplanev1.ResourceSet) reconcile.Ref {
	return reconcile.RefTo(GroupKind, obj.Namespace, obj.Name)
}

// isTerminal reports whether a retry cannot help.
func isTerminal(err error) bool {
	f := fault.As(err)
	return f != nil && f.Terminal
}
