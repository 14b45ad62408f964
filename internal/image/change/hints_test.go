package change

import (
	"errors"
	"testing"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
)

func TestHintFitsTheField(t *testing.T) {
	_, noGit := checkSpec(&imagev1.ImageUpdateAutomation{})
	_, strategy := checkSpec(&imagev1.ImageUpdateAutomation{Spec: imagev1.ImageUpdateAutomationSpec{
		GitSpec: &imagev1.GitSpec{}, Update: &imagev1.UpdateStrategy{Strategy: "Other"}}})
	_, forced := destination("+refs/heads/main:refs/heads/x", "main")
	_, other := destination("refs/heads/dev:refs/heads/x", "main")
	for want, err := range map[string]error{
		"Set spec.git.commit.author to the author of the commits": noGit,
		"Set it to Setters":    strategy,
		"Correct the template": templateFault("spec.git.commit.messageTemplate", errors.New("syntax")),
		"Write it as refs/heads/main:refs/heads/OTHER; deletions and forced updates are not supported": forced,
		"Set its source to refs/heads/main": other,
	} {
		if f := fault.As(err); f == nil || f.Hint != want {
			t.Errorf("got %v, want the hint %q", err, want)
		}
	}
}
