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
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// ImageAutomation configures the controllers for tests that set the latest images of policies: no registry is scanned.
func ImageAutomation(o *options.Options) {
	o.Controllers = []string{options.SourceController, options.GatingController, options.ImageAutomationController}
}

// ChooseImage sets the latest image of an ImagePolicy, which it creates with labels if it does not exist.
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

// ImageUpdateAutomation creates an automation for a GitRepository.
func (s *System) ImageUpdateAutomation(name, source string, change ...func(*imagev1.ImageUpdateAutomation)) {
	s.Helper()
	a := &imagev1.ImageUpdateAutomation{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: imagev1.ImageUpdateAutomationSpec{
			Interval:  meta.Duration{Duration: time.Hour},
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

// ImageUpdateAutomationReady waits until the Ready condition of an automation has a status, a reason and a message that
// contains a text, and returns the automation.
func (s *System) ImageUpdateAutomationReady(name string, status metav1.ConditionStatus, reason,
	message string) *imagev1.ImageUpdateAutomation {
	s.Helper()
	a := &imagev1.ImageUpdateAutomation{}
	s.eventually(fmt.Sprintf("the Ready condition of %s contains %s", name, message), func() error {
		*a = imagev1.ImageUpdateAutomation{}
		if err := s.Get(a, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(a.Status.Conditions, reconcile.TypeReady)
		if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	return a
}

// ImageUpdateJob creates an ImageUpdateJob for the automation "update".
func (s *System) ImageUpdateJob(name string, spec imagev1alpha1.ImageUpdateJobSpec) {
	s.Helper()
	spec.AutomationRef.Name = "update"
	s.Create(&imagev1alpha1.ImageUpdateJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: spec})
}

// ImageUpdateJobReady waits until the Ready condition of a job has a status and a message that contains a
// text, and returns the job.
func (s *System) ImageUpdateJobReady(name string, status metav1.ConditionStatus,
	message string) *imagev1alpha1.ImageUpdateJob {
	s.Helper()
	j := &imagev1alpha1.ImageUpdateJob{}
	s.eventually(fmt.Sprintf("the Ready condition of %s contains %s", name, message), func() error {
		*j = imagev1alpha1.ImageUpdateJob{}
		if err := s.Get(j, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(j.Status.Conditions, reconcile.TypeReady)
		if c == nil || c.Status != status || !strings.Contains(c.Message, message) {
			return fmt.Errorf("%+v", j.Status)
		}
		return nil
	})
	return j
}

// DeploymentWithImages returns the manifest of a Deployment with the containers c0, c1, ….
func DeploymentWithImages(name string, images ...string) string {
	text := "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: " + name +
		"\nspec:\n  template:\n    spec:\n      containers:\n"
	for i, image := range images {
		text += fmt.Sprintf("        - name: c%d\n          image: %s # as it runs\n", i, image)
	}
	return text
}

// Containers returns references to containers of Deployments, from <deployment>:<container>.
func Containers(names ...string) (all []imagev1.WorkloadContainer) {
	for _, name := range names {
		name, container, _ := strings.Cut(name, ":")
		all = append(all, imagev1.WorkloadContainer{Kind: "Deployment", Name: name, Container: container})
	}
	return all
}

// BranchHas waits until a file of a branch has a content.
func (s *System) BranchHas(repo, branch, file, want string) {
	s.Helper()
	s.eventually(fmt.Sprintf("file %s of branch %s has the expected content", file, branch), func() error {
		if s.Git.Run(repo, "for-each-ref", "refs/heads/"+branch) == "" ||
			s.Git.Run(repo, "ls-tree", branch, "--", file) == "" {
			return errors.New("it does not exist")
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

// CommitCount returns the number of commits of a branch.
func (s *System) CommitCount(repo, branch string) int {
	s.Helper()
	return len(strings.Fields(s.Git.Run(repo, "rev-list", branch)))
}
