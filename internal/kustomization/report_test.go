package kustomization

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/utils/clock"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestHistoryHasOneEntryPerBuildAndResult(t *testing.T) {
	r := &run{
		Controller: &Controller{Clock: clock.RealClock{}}, obj: &kustomizev1.Kustomization{},
		source: &meta.Artifact{Revision: "main@sha1:1"}, state: &state{build: buildState{digest: "sha256:a"}},
	}
	for _, err := range []error{fault.New(meta.HealthCheckFailedReason, "not yet"), nil, nil,
		fault.New(meta.HealthCheckFailedReason, "again")} {
		r.worked, r.state.started = true, time.Now()
		r.recordHistory(err)
	}
	var got []string
	for _, s := range r.obj.Status.History {
		got = append(got, fmt.Sprint(s.Digest, " ", s.LastReconciledStatus, " ", s.TotalReconciliations))
	}
	want := "[sha256:a HealthCheckFailed 2 sha256:a ReconciliationSucceeded 2]"
	if fmt.Sprint(got) != want {
		t.Errorf("the history is %s, want %s", got, want)
	}
}
