// Package release holds the controller of ImageUpdateJobs: a release that somebody asks for, once. What is
// committed, and how, is the business of the automation that the job names.
package release

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/image/automate"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/record"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// GroupKind identifies the kind to the kernel.
var GroupKind = schema.GroupKind{Group: imagev1alpha1.GroupVersion.Group, Kind: imagev1alpha1.ImageUpdateJobKind}

// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imageupdatejobs,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imageupdatejobs/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imageupdatejobs/finalizers,verbs=get;create;update;patch;delete

// maxChanges is how many changes the status lists.
const maxChanges = 100

// Releaser commits what was asked for.
type Releaser interface {
	Release(ctx context.Context, automation *imagev1.ImageUpdateAutomation,
		r automate.Request) (automate.Release, error)
}

// Jobs is the domain step of the kind.
type Jobs struct {
	Objects  client.Reader // the cache
	Releases Releaser
	Clock    clock.PassiveClock
}

// References implements [reconcile.Step]. Nothing wakes a job that ran.
func (j *Jobs) References(obj *imagev1alpha1.ImageUpdateJob) []reconcile.Ref {
	if obj.Status.CompletionTime != nil {
		return nil
	}
	return []reconcile.Ref{reconcile.RefTo(automate.GroupKind, obj.Namespace, obj.Spec.AutomationRef.Name)}
}

// Finalize implements [reconcile.Step]: what was committed stays.
func (j *Jobs) Finalize(context.Context, *imagev1alpha1.ImageUpdateJob) error { return nil }

// Reconcile runs the job, unless it ran already.
func (j *Jobs) Reconcile(ctx context.Context, pass *reconcile.Pass[*imagev1alpha1.ImageUpdateJob]) reconcile.Outcome {
	obj := pass.Object
	if obj.Status.CompletionTime != nil {
		return ended(obj)
	}
	automation := &imagev1.ImageUpdateAutomation{}
	key := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Spec.AutomationRef.Name}
	if err := j.Objects.Get(ctx, key, automation); apierrors.IsNotFound(err) {
		return reconcile.Waiting(imagev1.InvalidSourceConfigurationReason,
			"ImageUpdateAutomation '%s' not found. Create it, or make a job that names another", key)
	} else if err != nil {
		return reconcile.Failed(fault.New(imagev1.UpdateFailedReason, "cannot read ImageUpdateAutomation '%s'", key).
			Because(err))
	}
	request, err := requestOf(obj)
	if err != nil {
		return j.finished(obj, reconcile.Failed(err))
	}
	request.Admit = pass.Admit
	request.Save = func(ctx context.Context, r automate.Release) error {
		tell(obj, r)
		if err := pass.Save(ctx, fmt.Sprintf("Pushing commit '%.7s'", r.Commit)); err != nil {
			return fault.New(imagev1.UpdateFailedReason, "cannot note the commit before it is pushed").Because(err)
		}
		return nil
	}
	release, err := j.Releases.Release(ctx, automation, request)
	if f := fault.As(err); err != nil && (f == nil || !f.Terminal) {
		if len(release.Changes) > 0 {
			tellChanges(obj, release.Changes) // that wait
		}
		return reconcile.Failed(err) // tried again, or held by gates
	}
	tell(obj, release)
	if err != nil {
		return j.finished(obj, reconcile.Failed(err))
	}
	message := outcome(release)
	o := reconcile.Ready(meta.SucceededReason, "%s", message)
	if obj.Status.Commit != "" {
		o = o.WithMetadata("revision", "sha1:"+obj.Status.Commit)
	}
	return j.finished(obj, o)
}

// finished notes that the job does not run again.
func (j *Jobs) finished(obj *imagev1alpha1.ImageUpdateJob, o reconcile.Outcome) reconcile.Outcome {
	obj.Status.CompletionTime = &meta.Time{Time: j.Clock.Now()}
	return o
}

// ended is the outcome of a job that ran, as it was.
func ended(obj *imagev1alpha1.ImageUpdateJob) reconcile.Outcome {
	ready := apimeta.FindStatusCondition(obj.Status.Conditions, reconcile.TypeReady)
	switch {
	case ready == nil:
		return reconcile.Ready(meta.SucceededReason, "ran already").Unchanged()
	case ready.Status == metav1.ConditionTrue:
		return reconcile.Ready(ready.Reason, "%s", ready.Message).Unchanged()
	}
	return reconcile.Failed(fault.New(ready.Reason, "%s", ready.Message).Final()).Unchanged()
}

func requestOf(obj *imagev1alpha1.ImageUpdateJob) (automate.Request, error) {
	r := automate.Request{
		UID: obj.UID, Name: obj.Name, Pushing: plumbing.NewHash(obj.Status.Commit),
		By:     record.By(imagev1alpha1.ImageUpdateJobKind, obj.Namespace, obj.Name),
		Author: obj.Spec.Author, Reason: obj.Spec.Reason, Workloads: obj.Spec.Workloads, DryRun: obj.Spec.DryRun,
	}
	seen := map[string]bool{}
	for _, text := range obj.Spec.Images {
		image := edit.ParseRef(text)
		if !image.Valid() || image.Tag == "" && image.Digest == "" {
			return r, fault.New(imagev1.UpdateFailedReason, "spec.images: '%s' is no image", text).
				WithHint("Write it as name:tag, name@digest or name:tag@digest").Final()
		}
		if seen[image.Name] {
			return r, fault.New(imagev1.UpdateFailedReason, "spec.images has two images of the name '%s'", image.Name).
				WithHint("Make a job of each").Final()
		}
		seen[image.Name] = true
		r.Images = append(r.Images, image)
	}
	return r, nil
}

// tell writes what was done, or would be, into the status.
func tell(obj *imagev1alpha1.ImageUpdateJob, release automate.Release) {
	obj.Status.PullRequest, obj.Status.Commit = release.PullRequest, ""
	if !release.Commit.IsZero() {
		obj.Status.Commit = release.Commit.String()
	}
	if obj.Status.Commit == "" || len(release.Changes) > 0 { // else they are known from before the commit was pushed
		tellChanges(obj, release.Changes)
	}
}

func tellChanges(obj *imagev1alpha1.ImageUpdateJob, changes []edit.Change) {
	obj.Status.Changes, obj.Status.Diff = nil, automate.Diff(changes)
	for _, c := range changes[:min(len(changes), maxChanges)] {
		obj.Status.Changes = append(obj.Status.Changes, imagev1alpha1.ImageChange{
			File: c.File, Line: int32(c.Line), // of a file of two MiB at most
			Object: c.Object.String(), Container: c.Container, Policy: strings.Replace(c.Policy, ":", "/", 1),
			Old: c.Old, New: c.New,
		})
	}
}

// outcome says what became of the job.
func outcome(release automate.Release) string {
	var text string
	switch {
	case release.Message != "":
		text = release.Message
	case len(release.Changes) == 0:
		text = "nothing was to be changed"
	default:
		text = fmt.Sprintf("%d values would be changed", len(release.Changes))
	}
	return strings.Join(append([]string{text}, release.Told...), "; ")
}
