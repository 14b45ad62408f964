// Package kustomization holds the Kustomization controller: source → build → apply → prune → health.
// It joins the packages that do each of these, and decides which of them a change calls for.
package kustomization

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/health"
	"github.com/sluice-gitops/sluice/internal/kustomization/spec"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// KustomizationGroupKind identifies the kind to the kernel.
var KustomizationGroupKind = schema.GroupKind{Group: kustomizev1.GroupVersion.Group,
	Kind: kustomizev1.KustomizationKind}

// +kubebuilder:rbac:groups=kustomize.toolkit.fluxcd.io,resources=kustomizations,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=kustomize.toolkit.fluxcd.io,resources=kustomizations/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=kustomize.toolkit.fluxcd.io,resources=kustomizations/finalizers,verbs=get;create;update;patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories;ocirepositories;buckets;externalartifacts,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories/status;ocirepositories/status;buckets/status;externalartifacts/status,verbs=get
// +kubebuilder:rbac:groups="",resources=configmaps;secrets;serviceaccounts,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=serviceaccounts/token,verbs=create
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch

// Kustomization is the domain step of the kind.
type Kustomization struct {
	Client    client.Reader // cached
	Configs   client.Reader // of ConfigMaps and Secrets, past the cache: they are not kept in memory
	Artifacts *artifact.Fetcher
	Clusters  *Clusters
	Events    reconcile.Events // of a Kustomization that is deleted; all others are those of outcomes
	Clock     clock.PassiveClock
	Options   Options

	mu     sync.Mutex
	memory map[types.UID]*memory
}

// Options are set by flags.
type Options struct {
	NoCrossNamespaceRefs  bool
	DefaultServiceAccount string
	PatientHealth         bool // objects that say that they failed are waited for until the time-out
	AdditiveReadyExpr     bool // dependencies must be Ready, too, where a readyExpr is given
	Decryption            Decryption
	// of kustomizations; remote ones are refused when nil
	FetchBase func(ctx context.Context, url string) ([]byte, error)
	// a variable that is not set and has no default is an error
	StrictSubstitutions bool
	// how often everything is dry-run again although nothing moved
	Resync time.Duration
}

// memory is what this process knows of one Kustomization. Losing it costs a build and a dry-run, nothing else.
type memory struct {
	generation int64        // of the spec at the last build
	inputs     string       // digest of the variables and keys that it took
	trace      *build.Trace // what it read
	target     *Target      // that it was applied to
	failure    error        // of that build, told again until what it read changes
	digest     string       // of what it made
	applied    bool         // whether what it made was applied to the end, or needs not be
	standing   string       // the digest of what was applied to the end last, if nothing was tried since
	contests   string       // who fights with us, as it was told
	warned     string       // of what it was warned last
	resynced   time.Time    // of the last full dry-run
	began      time.Time    // of what is under way: from its build to its health
	health     healthProgress
	expiring   map[health.Target]bool // of what it made, by references without a version
	checks     expressions
	pending    pendingChange
	stands     atomic.Pointer[standing] // what was applied to the end, for dependents to look at
}

// finish notes that there is nothing more to do about what was built.
func (m *memory) finish() {
	m.applied = true
	m.stands.Store(&standing{m.generation, m.trace})
}

// standing is what a Kustomization was built from when it was applied to the end.
type standing struct {
	generation int64
	trace      *build.Trace
}

// References lists what the Kustomization builds on and waits for.
func (k *Kustomization) References(obj *kustomizev1.Kustomization) []reconcile.Ref {
	s := obj.Spec.SourceRef
	refs := []reconcile.Ref{reconcile.RefTo(schema.GroupKind{Group: sourceGroup, Kind: s.Kind}, orOwn(obj, s.Namespace),
		s.Name)}
	for _, d := range obj.Spec.DependsOn {
		kind := KustomizationGroupKind
		if d.ReadyExpr != "" {
			kind = anyChangeGroupKind
		}
		refs = append(refs, reconcile.RefTo(kind, orOwn(obj, d.Namespace), d.Name))
	}
	if c := obj.Spec.KubeConfig; c != nil && c.SecretRef != nil {
		refs = append(refs, reconcile.RefTo(schema.GroupKind{Kind: "Secret"}, obj.Namespace, c.SecretRef.Name))
	} else if c != nil && c.ConfigMapRef != nil {
		refs = append(refs, reconcile.RefTo(schema.GroupKind{Kind: "ConfigMap"}, obj.Namespace, c.ConfigMapRef.Name))
	}
	return append(refs, inputRefs(obj)...)
}

// Reconcile makes the cluster match the source. Steps that nothing calls for are left out: a build whose files and
// settings are as they were, an apply whose objects are as built and did not move.
func (k *Kustomization) Reconcile(ctx context.Context,
	pass *reconcile.Pass[*kustomizev1.Kustomization]) reconcile.Outcome {
	obj := pass.Object
	source, waiting := k.source(ctx, obj)
	if waiting != nil {
		return *waiting
	}
	begun := false
	if err := pass.Admit(source.Revision); err != nil {
		if begun = k.begun(pass, source); !begun {
			return k.held(ctx, pass, source)
		}
	} else if waiting := k.dependencies(ctx, obj, source); waiting != nil {
		return waiting.WithArtifact(source)
	}
	target, err := k.Clusters.For(ctx, obj, k.Options.DefaultServiceAccount)
	if err != nil {
		return reconcile.Failed(err)
	}
	run := &run{Kustomization: k, pass: pass, obj: obj, source: source, target: target, memory: k.remembered(obj)}
	if begun && source.Revision != obj.Status.LastAttemptedRevision {
		// which is applied, and on its way to health
		run.source = &meta.Artifact{Revision: obj.Status.LastAttemptedRevision}
		run.applied = true
	}
	return run.do(ctx).WithArtifact(run.source)
}

// begun tells whether gates that closed let the pass finish what is under way: what was begun of the
// revision, or else, if the source has moved on, the rollout of what is applied.
func (k *Kustomization) begun(pass *reconcile.Pass[*kustomizev1.Kustomization], source *meta.Artifact) bool {
	return pass.InProgress && (source.Revision == pass.Object.Status.LastAttemptedRevision || k.remembered(pass.Object).
		applied)
}

// run is one pass of one Kustomization, past its gates.
type run struct {
	*Kustomization
	pass    *reconcile.Pass[*kustomizev1.Kustomization]
	obj     *kustomizev1.Kustomization
	source  *meta.Artifact
	target  *Target
	memory  *memory
	applied bool                 // whether nothing is left to do but to wait for health
	notes   []apply.Change       // what changed in the cluster
	drift   bool                 // what changed was drift, as the declarations are as they were
	events  []event              // beside that
	worked  bool                 // whether anything was built or applied
	written map[apply.Ref]string // the resource versions of what was, by references without a version
}

// event is one beside that of the transition of Ready.
type event struct {
	warning         bool
	reason, message string
}

func (r *run) do(ctx context.Context) reconcile.Outcome {
	if r.memory.began.IsZero() || r.obj.Status.LastAttemptedRevision != r.source.Revision {
		r.memory.began = r.Clock.Now()
	}
	r.obj.Status.LastAttemptedRevision = r.source.Revision
	r.cancelHealth()
	if err := r.bring(ctx); err != nil {
		r.record(err)
		return r.summarize(reconcile.Failed(err))
	}
	r.contested()
	outcome, err := r.checkHealth(ctx)
	if err != nil {
		r.record(err)
		return r.summarize(reconcile.Failed(err))
	}
	if outcome == nil {
		r.obj.Status.LastAppliedRevision, r.obj.Status.LastAppliedOriginRevision = r.source.Revision,
			r.source.OriginRevision()
		r.record(nil)
		o := reconcile.Ready(meta.ReconciliationSucceededReason, "Applied revision: %s", r.source.Revision)
		outcome = &o
	}
	return r.summarize(*outcome)
}

// bring builds and applies, where that is called for.
func (r *run) bring(ctx context.Context) error {
	if r.applied {
		return nil
	}
	in, err := r.inputs(ctx)
	if err != nil {
		return err
	}
	built, err := r.build(ctx, in)
	if err != nil || built == nil {
		return err
	}
	return r.accountMissing(ctx, in.hide(r.settle(ctx, built)))
}

// accountMissing says so where an account may do nothing because there is none: the API server does not tell.
func (r *run) accountMissing(ctx context.Context, err error) error {
	key := types.NamespacedName{Namespace: r.obj.Namespace, Name: accountOf(r.obj, r.Options.DefaultServiceAccount)}
	if err == nil || !strings.Contains(err.Error(), userPrefix+key.Namespace+":"+key.Name) ||
		!r.accountGone(ctx, r.obj) {
		return err
	}
	return fault.New(fault.Reason(err, meta.ReconciliationFailedReason),
		"ServiceAccount '%s' not found, which spec.serviceAccountName or --default-service-account names", key).
		Because(err).WithHint("Create it with a RoleBinding to what it is to apply")
}

// summarize adds what changed to the outcome's events.
func (r *run) summarize(o reconcile.Outcome) reconcile.Outcome {
	if !r.worked {
		o = o.Unchanged() // of a thousand that follow a commit to one, only that one has something to tell
	}
	switch {
	case len(r.notes) == 0:
	case r.drift:
		o = o.Note(meta.DriftCorrectedReason, "corrected drift: %s", summary(r.notes))
	default:
		o = o.Note(meta.ProgressingReason, "%s", summary(r.notes))
	}
	for _, e := range r.events {
		if e.warning {
			o = o.Warn(e.reason, "%s", e.message)
		} else {
			o = o.Note(e.reason, "%s", e.message)
		}
	}
	return o
}

// due tells whether the live objects call for a look although the declarations did not change.
func (r *run) due() bool {
	owner := r.owner()
	return r.obj.DriftMode() != meta.DriftDisabled &&
		(r.target.Cluster.Drifted(owner) || len(r.target.Cluster.UnwatchedKinds(owner)) > 0 || r.resync())
}

// resync tells whether it is time to compare everything, also what did not move.
func (r *run) resync() bool { return r.Clock.Since(r.memory.resynced) >= r.Options.Resync }

// applyRequest says what the cluster is to hold.
func (r *run) applyRequest(ctx context.Context, built *build.Result) (apply.Request, error) {
	ignore, err := spec.Ignored(r.obj)
	return apply.Request{
		Owner:           r.owner(),
		Objects:         built.Objects,
		Origin:          built.Origin,
		Previous:        inventoryOf(r.obj),
		Force:           r.obj.Spec.Force,
		Resync:          r.pass.Requested || r.resync(),
		Ignore:          ignore,
		SameDeclaration: r.drift,
		RerunExpired:    r.pass.Requested,
		MaxDiffs:        maxDiffs,
		Secrets:         built.Secrets,
		SaveInventory: func(i apply.Inventory) error {
			setInventory(r.obj, i)
			return r.pass.Save(ctx, fmt.Sprintf("Applying revision %s", r.source.Revision))
		},
	}, err
}

// apply makes the target match the objects, then removes what is no longer declared.
func (r *run) apply(ctx context.Context, built *build.Result) error {
	req, err := r.applyRequest(ctx, built)
	if err != nil {
		return err
	}
	r.memory.standing = ""
	result, err := r.target.Cluster.Apply(ctx, req)
	if result != nil {
		r.note(effective(result.Changes))
		r.warn(result.Warnings)
	}
	if err != nil {
		return err
	}
	stale := req.Previous.Without(result.Inventory)
	var left apply.Inventory
	if r.obj.Spec.Prune && len(stale) > 0 {
		left = r.inherited(ctx, stale)
		stale = stale.Without(left)
		// The pruned stay in the inventory until they are gone, so that a kill in between leaves none behind.
		pruned, err := r.target.Cluster.Prune(ctx, r.owner(), stale)
		r.note(pruned)
		if err != nil {
			setInventory(r.obj, result.Inventory.With(stale).With(left))
			return err
		}
	}
	setInventory(r.obj, result.Inventory.With(left))
	if len(left) == 0 {
		r.memory.standing = r.memory.digest
	}
	r.memory.finish()
	r.memory.applied = len(left) == 0
	if req.Resync {
		r.memory.resynced = r.Clock.Now()
	}
	return nil
}

// warn tells what the API server, or another owner of an object, has against what was applied; once as long
// as it is the same.
func (r *run) warn(warnings []string) {
	said := strings.Join(few(warnings), "\n")
	if said == "" || said == r.memory.warned {
		return
	}
	r.memory.warned = said
	r.events = append(r.events, event{warning: true, reason: meta.AppliedWithWarningsReason, message: said})
}

// note takes in what became of objects.
func (r *run) note(changes []apply.Change) {
	for _, c := range changes {
		if c.ResourceVersion != "" {
			if r.written == nil {
				r.written = map[apply.Ref]string{}
			}
			r.written[apply.Ref{Group: c.Ref.Group, Kind: c.Ref.Kind, Namespace: c.Ref.Namespace,
				Name: c.Ref.Name}] = c.ResourceVersion
		}
	}
	r.notes = append(r.notes, changes...)
}

func (r *run) owner() apply.Owner { return ownerOf(r.obj) }

func ownerOf(obj *kustomizev1.Kustomization) apply.Owner {
	return apply.Owner{Group: kustomizev1.GroupVersion.Group, Namespace: obj.Namespace, Name: obj.Name}
}

// remembered returns what this process knows of the object.
func (k *Kustomization) remembered(obj *kustomizev1.Kustomization) *memory {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.memory == nil {
		k.memory = map[types.UID]*memory{}
	}
	m := k.memory[obj.UID]
	if m == nil {
		m = &memory{standing: applied(obj)}
		k.memory[obj.UID] = m
	}
	return m
}

func orOwn(obj *kustomizev1.Kustomization, namespace string) string {
	if namespace == "" {
		return obj.Namespace
	}
	return namespace
}
