package automate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// waits waits until the automation has seen the tag of a policy, and reports how long the change still waits.
func waits(s *harness, policy, tag, left string) {
	s.Helper()
	testenv.Eventually(s, policy+":"+tag+" waits "+left, func() error {
		a := &imagev1.ImageUpdateAutomation{}
		if err := s.Get(a, "delay"); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(a.Status.Conditions, reconcile.TypeReady)
		if c == nil || c.Reason != "Progressing" || !strings.Contains(c.Message, "waiting "+left) ||
			a.Status.ObservedPolicies[policy].Tag != tag {
			return fmt.Errorf("%+v", a.Status)
		}
		return nil
	})
}

func TestPolicyChangeDelay(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	s := newHarness(t, system.ImageAutomation, func(o *options.Options) { o.Clock = clock })
	s.Git.Commit("app", map[string]string{"web.yaml": s.mark("web:1", "web"), "api.yaml": s.mark("api:1", "api")})
	s.GitRepository("app")
	s.ChooseImage("web", "web:1")
	s.ChooseImage("api", "api:1")
	s.ImageUpdateAutomation("delay", "app", func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.PolicyChangeDelay = &meta.Duration{Duration: 10 * time.Second}
	})
	s.ImageUpdateAutomationReady("delay", metav1.ConditionTrue, "Succeeded", "up-to-date")

	t.Log("the changes of the delay are one commit, and a later change does not extend it")
	s.ChooseImage("web", "web:2")
	waits(s, "web", "2", "10s")
	clock.Step(6 * time.Second)
	s.ChooseImage("api", "api:2")
	waits(s, "api", "2", "4s")
	if got := s.CommitCount("app", "main"); got != 1 {
		t.Errorf("%d commits before the end of the delay", got)
	}
	clock.Step(4 * time.Second)
	s.BranchHas("app", "main", "web.yaml", s.mark("web:2", "web"))
	s.BranchHas("app", "main", "api.yaml", s.mark("api:2", "api"))
	if got := s.CommitCount("app", "main"); got != 2 {
		t.Errorf("%d commits, want one for both changes", got)
	}

	t.Log("a request does not wait")
	s.ChooseImage("web", "web:3")
	waits(s, "web", "3", "10s")
	s.RequestReconcile(&imagev1.ImageUpdateAutomation{}, "delay")
	s.BranchHas("app", "main", "web.yaml", s.mark("web:3", "web"))
}
