package release

import (
	"testing"

	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/scan"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestHintsOfImages(t *testing.T) {
	for want, images := range map[string][]string{
		"Write it as name:tag, name@digest or name:tag@digest":      {"nginx"},
		"List each image once, or create a job for each of the two": {"nginx:1", "nginx:2"},
	} {
		_, err := parseImages(&imagev1alpha1.ImageUpdateJob{Spec: imagev1alpha1.ImageUpdateJobSpec{Images: images}})
		if f := fault.As(err); f == nil || f.Hint != want {
			t.Errorf("got %v, want the hint %q", err, want)
		}
	}
	many := tooMany(scan.Result{Changes: make([]edit.Change, 7), Edits: make([]git.Edit, 2)})
	if want := "more than the first 7 values in 2 files would change, which are too many for one commit. " +
		"Create several jobs, for some of the workloads or images each"; many.Error() != want {
		t.Errorf("got %v, want %q", many, want)
	}
}
