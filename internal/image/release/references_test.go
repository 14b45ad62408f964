package release

import (
	"testing"

	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// TestCompletedJobHasNoReferences keeps each change of an automation from enqueueing every job that ever used it.
func TestCompletedJobHasNoReferences(t *testing.T) {
	j, obj := &Jobs{}, &imagev1alpha1.ImageUpdateJob{}
	obj.Namespace, obj.Spec.AutomationRef.Name = "apps", "update"
	if refs := j.References(obj); len(refs) != 1 || refs[0].Name != "update" {
		t.Errorf("references of a pending job: %v", refs)
	}
	obj.Status.CompletionTime = &meta.Time{}
	if refs := j.References(obj); len(refs) > 0 {
		t.Errorf("references of a completed job: %v", refs)
	}
}
