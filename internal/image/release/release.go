// Package release is the controller of ImageUpdateJobs: a requested release that runs once. The job commits to
// the repository of the ImageUpdateAutomation that it names, as that automation would.
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
	"github.com/sluice-gitops/sluice/internal/image/change"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// GroupKind identifies the kind to the kernel.
var GroupKind = schema.GroupKind{Group: imagev1alpha1.GroupVersion.Group, Kind: imagev1alpha1.ImageUpdateJobKind}

var automationGroupKind = schema.GroupKind{Group: imagev1.GroupVersion.Group, Kind: imagev1.ImageUpdateAutomationKind}

// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imageupdatejobs,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imageupdatejobs,verbs=update;patch;delete
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imageupdatejobs/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imageupdatejobs/finalizers,verbs=get;create;update
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imageupdatejobs/finalizers,verbs=patch;delete

// maxChanges is how many changes the status lists.
const maxChanges = 100

// Jobs is the domain step of the kind.
type Jobs struct {
	Objects client.Reader // the cache
	Writers *change.Opener
	Clock   clock.PassiveClock
}

// References implements [reconcile.Step]. A job that has run has none, so that nothing enqueues it.
func (j *Jobs) References(obj *imagev1alpha1.ImageUpdateJob) []reconcile.Ref {
	if obj.Status.CompletionTime != nil {
		return nil
	}
	return []reconcile.Ref{reconcile.RefTo(automationGroupKind, obj.Namespace, obj.Spec.AutomationRef.Name)}
}

// Finalize implements [reconcile.Step]. Commits are kept.
func (j *Jobs) Finalize(context.Context, *imagev1alpha1.ImageUpdateJob) error { return nil }

// Reconcile implements [reconcile.Step]: it runs the job once.
func (j *Jobs) Reconcile(ctx context.Context, pass *reconcile.Pass[*imagev1alpha1.ImageUpdateJob]) reconcile.Outcome {
	obj := pass.Object
	if obj.Status.CompletionTime != nil {
		return previousOutcome(obj)
	}
	automation := &imagev1.ImageUpdateAutomation{}
	key := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Spec.AutomationRef.Name}
	if err := j.Objects.Get(ctx, key, automation); apierrors.IsNotFound(err) {
		return reconcile.Waiting(imagev1.InvalidSourceConfigurationReason,
			"ImageUpdateAutomation '%s' not found. Create it, or create a job that names another one", key)
	} else if err != nil {
		return reconcile.Failed(fault.New(imagev1.UpdateFailedReason, "cannot read ImageUpdateAutomation '%s'", key).
			Because(err))
	}
	images, err := parseImages(obj)
	if err != nil {
		return j.completed(obj, reconcile.Failed(err))
	}
	res, err := j.run(ctx, pass, automation, images)
	if f := fault.As(err); err != nil && (f == nil || !f.Terminal) {
		if len(res.changes) > 0 {
			recordChanges(obj, res.changes) // those that are pending
		}
		return reconcile.Failed(err) // retried, or held by gates
	}
	res.record(obj)
	if err != nil {
		return j.completed(obj, reconcile.Failed(err))
	}
	o := reconcile.Ready(meta.SucceededReason, "%s", res.summary())
	if obj.Status.Commit != "" {
		o = o.WithMetadata("revision", "sha1:"+obj.Status.Commit)
	}
	return j.completed(obj, o)
}

// completed records that the job does not run again.
func (j *Jobs) completed(obj *imagev1alpha1.ImageUpdateJob, o reconcile.Outcome) reconcile.Outcome {
	obj.Status.CompletionTime = &meta.Time{Time: j.Clock.Now()}
	return o
}

// previousOutcome returns the outcome of a completed job unchanged.
func previousOutcome(obj *imagev1alpha1.ImageUpdateJob) reconcile.Outcome {
	ready := apimeta.FindStatusCondition(obj.Status.Conditions, reconcile.TypeReady)
	switch {
	case ready == nil:
		return reconcile.Ready(meta.SucceededReason, "completed").Unchanged()
	case ready.Status == metav1.ConditionTrue:
		return reconcile.Ready(ready.Reason, "%s", ready.Message).Unchanged()
	}
	return reconcile.Failed(fault.New(ready.Reason, "%s", ready.Message).Final()).Unchanged()
}

// parseImages parses spec.images.
func parseImages(obj *imagev1alpha1.ImageUpdateJob) ([]edit.Ref, error) {
	var images []edit.Ref
	seen := map[string]bool{}
	for _, text := range obj.Spec.Images {
		image := edit.ParseRef(text)
		if !image.Valid() || image.Tag == "" && image.Digest == "" {
			return nil, fault.New(imagev1.UpdateFailedReason, "spec.images: '%s' is not an image reference", text).
				WithHint("Write it as name:tag, name@digest or name:tag@digest").Final()
		}
		if seen[image.Name] {
			return nil, fault.New(imagev1.UpdateFailedReason, "spec.images lists image '%s' twice", image.Name).
				WithHint("List each image once, or create a job for each of the two").Final()
		}
		seen[image.Name] = true
		images = append(images, image)
	}
	return images, nil
}

// result is what a job did.
type result struct {
	commit      plumbing.Hash // zero: nothing was committed
	changes     []edit.Change // none for a commit that an earlier try pushed
	pullRequest string        // address; empty if none was opened
	problems    []string
	message     string // about the commit; empty if there is none
}

// record writes the result to the status.
func (r result) record(obj *imagev1alpha1.ImageUpdateJob) {
	obj.Status.PullRequest, obj.Status.Commit = r.pullRequest, ""
	if !r.commit.IsZero() {
		obj.Status.Commit = r.commit.String()
	}
	if obj.Status.Commit == "" || len(r.changes) > 0 { // else they were recorded before the push
		recordChanges(obj, r.changes)
	}
}

func recordChanges(obj *imagev1alpha1.ImageUpdateJob, changes []edit.Change) {
	obj.Status.Changes, obj.Status.Diff = nil, change.Diff(changes)
	for _, c := range changes[:min(len(changes), maxChanges)] {
		obj.Status.Changes = append(obj.Status.Changes, imagev1alpha1.ImageChange{
			File: c.File, Line: int32(c.Line), // files have at most 2 MiB
			Object: c.Object.String(), Container: c.Container, Policy: strings.Replace(c.Policy, ":", "/", 1),
			Old: c.Old, New: c.New,
		})
	}
}

// summary returns the message of the Ready condition.
func (r result) summary() string {
	var text string
	switch n := len(r.changes); {
	case r.message != "":
		text = r.message
	case n == 0:
		text = "nothing to change"
	case n == 1:
		text = "1 value would be changed"
	default:
		text = fmt.Sprintf("%d values would be changed", n)
	}
	return strings.Join(append([]string{text}, r.problems...), "; ")
}
