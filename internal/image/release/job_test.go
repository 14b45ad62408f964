package release

import (
	"testing"

	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// TestNothingWakesAJobThatRan: each change of an automation would else cost a pass of every job that it ever
// had, and a line in the log.
func TestNothingWakesAJobThatRan(t *testing.T) {
	j, obj := &Jobs{}, &imagev1alpha1.ImageUpdateJob{}
	obj.Namespace, obj.Spec.AutomationRef.Name = "apps", "update"
	if refs := j.References(obj); len(refs) != 1 || refs[0].Name != "update" {
		t.Errorf("a job that is yet to run is woken by %v", refs)
	}
	obj.Status.CompletionTime = &meta.Time{}
	if refs := j.References(obj); len(refs) > 0 {
		t.Errorf("a job that ran is woken by %v", refs)
	}
}
