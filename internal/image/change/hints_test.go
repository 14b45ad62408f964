package change

import (
	"errors"
	"testing"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/message"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestHintsOfPullRequests(t *testing.T) {
	tag := &sourcev1.GitRepository{Spec: sourcev1.GitRepositorySpec{Reference: &sourcev1.GitRepositoryRef{Tag: "v1"}}}
	obj := &imagev1.ImageUpdateAutomation{Spec: imagev1.ImageUpdateAutomationSpec{GitSpec: &imagev1.GitSpec{},
		PullRequest: &imagev1.PullRequest{Branch: "main"}}}
	_, push := targetOf(obj, tag)
	_, merge := (&Opener{}).pullRequestOf(t.Context(), obj, target{checkout: git.Reference{Tag: "v1"}}, git.Remote{})
	into, err := message.Parse("main")
	if err != nil {
		t.Fatal(err)
	}
	w := &Writer{automation: obj, pullRequest: &pullRequest{into: "main", branch: into}}
	_, same := w.Branch(t.Context(), &Checkout{}, []edit.Change{{File: "a.yaml"}}, "")
	for want, err := range map[string]error{
		"The checked out reference is not a branch: set spec.git.push.branch":         push,
		"The checked out reference is not a branch: set spec.git.checkout.ref.branch": merge,
		"Set it to another name than 'main'":                                          same,
	} {
		if f := fault.As(err); f == nil || f.Hint != want {
			t.Errorf("got %v, want the hint %q", err, want)
		}
	}
}

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
