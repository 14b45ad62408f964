package resourceset

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// The pause between two recreations of failed Jobs doubles from the first to the last.
const (
	minRecreation = 10 * time.Second
	maxRecreation = 15 * time.Minute
)

// recreatesOnFailure reports whether an object is a Job that is created again when it has failed.
func recreatesOnFailure(o *unstructured.Unstructured) bool {
	return o.GroupVersionKind().GroupKind() == schema.GroupKind{Group: "batch", Kind: "Job"} &&
		o.GetAnnotations()[controlplanev1.RecreateOnFailureAnnotation] == controlplanev1.Enabled
}

// failedJobs returns the Jobs that must be created again.
func (r *run) failedJobs(ctx context.Context) (map[apply.Ref]types.UID, error) {
	failed := map[apply.Ref]types.UID{}
	if r.Clock.Now().Before(r.state.apply.nextRecreation) && !r.pass.Requested {
		return failed, nil
	}
	for _, ref := range r.state.build.jobs {
		uid, err := r.target.Cluster.FailedJob(ctx, rollout.OwnerOf(refOf(r.obj)), ref)
		if err != nil {
			return nil, err
		}
		if uid != "" {
			failed[ref] = uid
		}
	}
	return failed, nil
}

// jobsAreFine reports whether no Job must be created again.
func (r *run) jobsAreFine(ctx context.Context) bool {
	failed, err := r.failedJobs(ctx)
	return err == nil && len(failed) == 0
}

// recreateFailedJobs deletes the Jobs that have failed, so that the apply creates them again.
func (r *run) recreateFailedJobs(ctx context.Context) error {
	failed, err := r.failedJobs(ctx)
	if err != nil || len(failed) == 0 {
		return err
	}
	s := &r.state.apply
	for ref, uid := range failed {
		if err := r.target.Cluster.DeleteJob(ctx, rollout.OwnerOf(refOf(r.obj)), ref, uid); err != nil {
			return err
		}
	}
	pause := min(minRecreation<<min(s.recreations, 10), maxRecreation)
	s.recreations++
	s.nextRecreation = r.Clock.Now().Add(pause)
	r.isDrift = false // that Jobs are created again is none
	return nil
}
