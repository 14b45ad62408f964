package system

import (
	"errors"
	"fmt"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// ImageAutomation leaves policies to the test: no registry is asked.
func ImageAutomation(o *options.Options) {
	o.Controllers = []string{options.SourceController, options.GatingController, options.ImageAutomationController}
}

// ChooseImage makes a policy choose an image.
func (s *System) ChooseImage(policy, image string, labels ...string) {
	s.Helper()
	p := &imagev1.ImagePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: policy}}
	if s.Get(p, policy) != nil {
		p.Labels = map[string]string{}
		for _, l := range labels {
			p.Labels[l] = "yes"
		}
		p.Spec.ImageRepositoryRef.Name = policy
		p.Spec.Policy.SemVer = &imagev1.SemVerPolicy{Range: ">=1.0.0"}
		s.Create(p)
	}
	before := p.DeepCopy()
	name, tag, _ := strings.Cut(image, ":")
	p.Status.LatestRef = &imagev1.ImageRef{Name: name, Tag: tag}
	if err := s.Client.Status().Patch(s.Context(), p, client.MergeFrom(before)); err != nil {
		s.Fatal(err)
	}
}

// ImageUpdateAutomation creates an automation of the GitRepository of that name.
func (s *System) ImageUpdateAutomation(name, source string, change ...func(*imagev1.ImageUpdateAutomation)) {
	s.Helper()
	a := &imagev1.ImageUpdateAutomation{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: imagev1.ImageUpdateAutomationSpec{
			Interval:  metav1.Duration{Duration: time.Hour},
			SourceRef: imagev1.SourceReference{Kind: sourcev1.GitRepositoryKind, Name: source},
			GitSpec: &imagev1.GitSpec{Commit: imagev1.CommitSpec{Author: imagev1.CommitUser{Name: "Robot",
				Email: "robot@example.com"}}},
		},
	}
	for _, c := range change {
		c(a)
	}
	s.Create(a)
}

// BranchHas waits until a file of a branch has a content.
func (s *System) BranchHas(repo, branch, file, want string) {
	s.Helper()
	testenv.Eventually(s, fmt.Sprintf("%s of %s is as wanted", file, branch), func() error {
		if s.Git.Run(repo, "for-each-ref", "refs/heads/"+branch) == "" ||
			s.Git.Run(repo, "ls-tree", branch, "--", file) == "" {
			return errors.New("not there")
		}
		if got := s.Git.Run(repo, "show", branch+":"+file) + "\n"; got != want {
			a := &imagev1.ImageUpdateAutomationList{}
			err := s.Client.List(s.Context(), a, client.InNamespace(s.Namespace))
			states := ""
			for _, i := range a.Items {
				states += fmt.Sprintf("\n%s %+v", i.Name, i.Status)
			}
			return errors.Join(err, fmt.Errorf("%q %s", got, states))
		}
		return nil
	})
}

// ImageUpdateAutomationReady waits until an automation says something, being Ready or not.
func (s *System) ImageUpdateAutomationReady(name string, status metav1.ConditionStatus, reason,
	says string) *imagev1.ImageUpdateAutomation {
	s.Helper()
	a := &imagev1.ImageUpdateAutomation{}
	testenv.Eventually(s, fmt.Sprintf("%s says %s", name, says), func() error {
		*a = imagev1.ImageUpdateAutomation{}
		if err := s.Get(a, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(a.Status.Conditions, reconcile.TypeReady)
		if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, says) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	return a
}

func (s *System) CommitCount(repo, branch string) int {
	s.Helper()
	return len(strings.Fields(s.Git.Run(repo, "rev-list", branch)))
}
