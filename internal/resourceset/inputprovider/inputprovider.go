// Package inputprovider has the controller of ResourceSetInputProviders: it reads branches, tags, change requests and
// environments of git hosts, tags of registries, answers of services and ExternalArtifacts, and exports those that the
// object selects as sets of inputs for ResourceSets.
//
// Inputs are replaced only by what was read as a whole. After an error, the object keeps those that it has.
package inputprovider

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/explain"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// +kubebuilder:rbac:groups=fluxcd.controlplane.io,resources=resourcesetinputproviders,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=fluxcd.controlplane.io,resources=resourcesetinputproviders,verbs=update;patch;delete
// +kubebuilder:rbac:groups=fluxcd.controlplane.io,resources=resourcesetinputproviders/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=fluxcd.controlplane.io,resources=resourcesetinputproviders/finalizers,verbs=get;create
// +kubebuilder:rbac:groups=fluxcd.controlplane.io,resources=resourcesetinputproviders/finalizers,verbs=update;patch
// +kubebuilder:rbac:groups=fluxcd.controlplane.io,resources=resourcesetinputproviders/finalizers,verbs=delete

// GroupKind is the kind of this package.
var GroupKind = schema.GroupKind{Group: controlplanev1.GroupVersion.Group,
	Kind: controlplanev1.ResourceSetInputProviderKind}

// Providers is the domain step of ResourceSetInputProviders.
type Providers struct {
	Registries *access.Registries
	GitHubApps *auth.GitHubApps
	Objects    client.Reader // the cache
	// Impersonate returns a client that acts as a service account.
	Impersonate func(types.NamespacedName) (client.Client, error)
	// DefaultServiceAccount is impersonated to read ExternalArtifacts if spec.serviceAccountName is not set, except for
	// providers in the namespace of the controllers.
	DefaultServiceAccount string
	ControllerNamespace   string
	NoCrossNamespaceRefs  bool
	Clock                 clock.PassiveClock
}

// provider is one pass of an object.
type provider struct {
	*Providers
	obj    *controlplanev1.ResourceSetInputProvider
	filter *filter
	before map[string]controlplanev1.InputSet // the exported input sets by ID
}

// References implements [reconcile.Step]: the Secrets and, for selectors, all ExternalArtifacts of a namespace.
func (p *Providers) References(obj *controlplanev1.ResourceSetInputProvider) []reconcile.Ref {
	refs := access.SecretRefs(obj.Namespace, obj.Spec.SecretRef, obj.Spec.CertSecretRef)
	for _, s := range obj.Spec.Selectors {
		refs = append(refs, artifactsOf(cmp.Or(s.Namespace, obj.Namespace)))
	}
	return refs
}

// Finalize implements [reconcile.Step]. Nothing is stored outside of the object.
func (p *Providers) Finalize(context.Context, *controlplanev1.ResourceSetInputProvider) error {
	return nil
}

// Reconcile implements [reconcile.Step]: it reads the inputs and exports them, if the schedule allows it now.
func (p *Providers) Reconcile(ctx context.Context,
	pass *reconcile.Pass[*controlplanev1.ResourceSetInputProvider]) reconcile.Outcome {
	obj := pass.Object
	calendar, err := newCalendar(obj.Spec.Schedule, obj.Schedule().Timeout)
	if err != nil {
		return reconcile.Failed(err)
	}
	one := &provider{Providers: p, obj: obj, before: byID(obj.Status.ExportedInputs)}
	if one.filter, err = newFilter(obj.Spec.Filter); err != nil {
		return reconcile.Failed(err)
	}
	if err := checkDefaults(obj.Spec.DefaultValues); err != nil {
		return reconcile.Failed(err)
	}
	now := p.Clock.Now()
	isNew := calendar.note(&obj.Status, now)
	if !isForced(obj) && !calendar.allows(now, obj.Schedule().Timeout) {
		return skipped(obj, isNew || pass.Requested).After(obj.Status.NextSchedule.When.Sub(now))
	}
	sets, err := one.read(ctx)
	if err == nil {
		sets, err = withDefaults(sets, obj.Spec.DefaultValues)
	}
	if err != nil {
		return reconcile.Failed(err)
	}
	return one.export(sets, calendar.wait(&obj.Status, now, obj.Schedule().Interval))
}

// isForced reports whether a new request ignores the schedule, and records it.
func isForced(obj *controlplanev1.ResourceSetInputProvider) bool {
	v := obj.Annotations[controlplanev1.ForceRequestAnnotation]
	if v == "" || v != obj.Annotations[meta.ReconcileRequestAnnotation] || v == obj.Status.LastHandledForceAt {
		return false
	}
	obj.Status.LastHandledForceAt = v
	return true
}

// skipped returns the outcome of a pass that the schedule does not allow: the object stays as it is.
func skipped(obj *controlplanev1.ResourceSetInputProvider, isNews bool) reconcile.Outcome {
	text := fmt.Sprintf("the schedule does not allow a reconcile before %s",
		obj.Status.NextSchedule.When.UTC().Format(time.RFC3339))
	is := apimeta.FindStatusCondition(obj.Status.Conditions, reconcile.TypeReady)
	var o reconcile.Outcome
	switch {
	case is == nil || is.Status == metav1.ConditionUnknown:
		return reconcile.Waiting(controlplanev1.SkippedDueToScheduleReason, "%s", text)
	case is.Status == metav1.ConditionTrue:
		o = reconcile.Ready(is.Reason, "%s", is.Message).Unchanged()
	default:
		o = reconcile.Waiting(is.Reason, "%s", explain.WithoutCode(is.Message))
	}
	if isNews {
		o = o.Note(controlplanev1.SkippedDueToScheduleReason, "%s", text)
	}
	return o
}

// export sets the status. Input sets that did not change are not written again.
func (p *provider) export(sets []controlplanev1.InputSet, wait time.Duration) reconcile.Outcome {
	revision, err := revisionOf(sets)
	if err != nil {
		return reconcile.Failed(err)
	}
	status := &p.obj.Status
	o := reconcile.Ready(meta.ReconciliationSucceededReason, "exported %s%s", excerpt.Count(len(sets), "input set"),
		p.ignored()).WithMetadata(meta.EventRevisionKey, revision)
	if wait > 0 {
		o = o.After(wait)
	}
	if status.LastExportedRevision == revision && len(status.ExportedInputs) == len(sets) {
		return o.Unchanged()
	}
	status.ExportedInputs, status.LastExportedRevision = sets, revision
	return o
}

// read reads the input sets, without default values.
func (p *provider) read(ctx context.Context) ([]controlplanev1.InputSet, error) {
	read := p.readers()[p.obj.Spec.Type]
	if read == nil {
		return nil, invalidSpec("spec.type '%s' is not supported", p.obj.Spec.Type)
	}
	sets, err := read(ctx)
	if err != nil {
		return nil, readFault(err)
	}
	return sets, nil
}

type reader = func(context.Context) ([]controlplanev1.InputSet, error)

// readers returns what reads the inputs of each type.
func (p *provider) readers() map[string]reader {
	return map[string]reader{
		controlplanev1.InputStatic:                   p.static,
		controlplanev1.InputGitHubBranch:             p.branches,
		controlplanev1.InputGitHubTag:                p.tags,
		controlplanev1.InputGitHubPullRequest:        p.requests,
		controlplanev1.InputGitLabBranch:             p.branches,
		controlplanev1.InputGitLabTag:                p.tags,
		controlplanev1.InputGitLabMergeRequest:       p.requests,
		controlplanev1.InputGitLabEnvironment:        p.environments,
		controlplanev1.InputAzureDevOpsBranch:        p.branches,
		controlplanev1.InputAzureDevOpsTag:           p.tags,
		controlplanev1.InputAzureDevOpsPullRequest:   p.requests,
		controlplanev1.InputAWSCodeCommitBranch:      p.branches,
		controlplanev1.InputAWSCodeCommitTag:         p.tags,
		controlplanev1.InputAWSCodeCommitPullRequest: p.requests,
		controlplanev1.InputGiteaBranch:              p.branches,
		controlplanev1.InputGiteaTag:                 p.tags,
		controlplanev1.InputGiteaPullRequest:         p.requests,
		controlplanev1.InputOCIArtifactTag:           p.images,
		controlplanev1.InputACRArtifactTag:           p.images,
		controlplanev1.InputECRArtifactTag:           p.images,
		controlplanev1.InputGARArtifactTag:           p.images,
		controlplanev1.InputExternalService:          p.service,
		controlplanev1.InputExternalArtifact:         p.artifacts,
	}
}

// static returns one input set.
func (p *provider) static(context.Context) ([]controlplanev1.InputSet, error) {
	return []controlplanev1.InputSet{inputs{idKey: checksum(string(p.obj.UID))}.set()}, nil
}

// readFault gives the fault of a read the reason that retries it, unless it is about the object itself.
func readFault(err error) error {
	f := fault.As(err)
	if f == nil {
		return fault.New(meta.ReconciliationFailedReason, "cannot read the inputs").Because(err)
	}
	switch f.Reason {
	case meta.InvalidSpecReason, meta.AccessDeniedReason, controlplanev1.InvalidExportedInputsReason:
		return err
	}
	converted := failed("%s", f.What).Because(f.Err).After(f.RetryAfter)
	converted.Hint, converted.Temporary = f.Hint, f.Temporary
	if f.Reason == meta.URLInvalidReason {
		converted.Reason, converted.Terminal = meta.InvalidSpecReason, true
		converted.Hint = strings.ReplaceAll(f.Hint, "spec.provider", "spec.type")
	}
	return converted
}

// failed returns a fault that is retried.
func failed(format string, args ...any) *fault.Fault {
	return fault.New(meta.ReconciliationFailedReason, format, args...)
}

func invalidSpec(format string, args ...any) *fault.Fault {
	return fault.New(meta.InvalidSpecReason, format, args...).Final()
}
