package automate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/image/automate"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

func TestBatching(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	s := newHarness(t, system.ImageAutomation, func(o *options.Options) { o.Clock = clock })
	s.Git.Commit("app", map[string]string{"web.yaml": s.mark("web:1", "web"), "api.yaml": s.mark("api:1", "api")})
	s.Git.Commit("each", map[string]string{"web.yaml": s.mark("web:1", "web"), "api.yaml": s.mark("api:1", "api")})
	s.GitRepository("app")
	s.GitRepository("each")
	s.ChooseImage("web", "web:1")
	s.ChooseImage("api", "api:1")
	batch := func(quiet time.Duration, perPolicy bool) func(*imagev1.ImageUpdateAutomation) {
		return func(a *imagev1.ImageUpdateAutomation) {
			a.Spec.Batch = &imagev1.Batch{PerPolicy: perPolicy}
			if quiet > 0 {
				a.Spec.Batch.Quiet, a.Spec.Batch.AtMost = &meta.Duration{Duration: quiet},
					&meta.Duration{Duration: 25 * time.Second}
			}
		}
	}
	s.ImageUpdateAutomation("batch", "app", batch(10*time.Second, false))
	s.ImageUpdateAutomation("each", "each", batch(0, true))
	s.ImageUpdateAutomationReady("batch", metav1.ConditionTrue, "Succeeded", "up-to-date")
	s.ImageUpdateAutomationReady("each", metav1.ConditionTrue, "Succeeded", "up-to-date")

	comes := func(policy, tag, left string) {
		s.Helper()
		s.ChooseImage(policy, policy+":"+tag)
		testenv.Eventually(s, policy+":"+tag+" waits "+left, func() error {
			a := &imagev1.ImageUpdateAutomation{}
			if err := s.Get(a, "batch"); err != nil {
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
	comes("web", "2", "10s")
	clock.Step(6 * time.Second)
	comes("api", "2", "10s")
	clock.Step(9 * time.Second)
	comes("web", "3", "10s") // after 15 seconds
	clock.Step(8 * time.Second)
	comes("api", "3", "2s") // after 25 seconds, the maximum
	if got := s.CommitCount("app", "main"); got != 1 {
		t.Errorf("%d commits before the end of the batch", got)
	}
	clock.Step(2 * time.Second)
	s.BranchHas("app", "main", "web.yaml", s.mark("web:3", "web"))
	s.BranchHas("app", "main", "api.yaml", s.mark("api:3", "api"))
	if got := s.CommitCount("app", "main"); got != 2 {
		t.Errorf("%d commits", got)
	}

	commitsEachPolicy(t, s)
}

// commitsEachPolicy makes sure that no commit changes images of two policies.
func commitsEachPolicy(t *testing.T, s *harness) {
	t.Helper()
	t.Log("with one commit per policy, no commit changes images of another policy")
	s.BranchHas("each", "main", "web.yaml", s.mark("web:3", "web"))
	s.BranchHas("each", "main", "api.yaml", s.mark("api:3", "api"))
	for _, commit := range strings.Fields(s.Git.Run("each", "rev-list", "main")) {
		if files := strings.Fields(s.Git.Run("each", "show", "--format=", "--name-only", commit)); len(files) > 1 &&
			commit != s.Git.Run("each", "rev-list", "--max-parents=0", "main") {
			t.Errorf("%s changed %v", commit, files)
		}
	}
}

func TestClosedGateHoldsCommit(t *testing.T) {
	s := newHarness(t, system.ImageAutomation)
	s.Gate("freeze")
	s.Git.Commit("app", map[string]string{"web.yaml": s.mark("web:1", "web")})
	s.GitRepository("app")
	s.ChooseImage("web", "web:2")
	s.ImageUpdateAutomation("update", "app", func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.Gates = system.GateRefs("freeze")
	})
	a := &imagev1.ImageUpdateAutomation{}
	testenv.Eventually(s, "the change waits", func() error {
		if err := s.Get(a, "update"); err != nil {
			return err
		}
		if p := a.Status.Pending; p == nil || p.Revision != s.Namespace+"/web=web:2" {
			return fmt.Errorf("%+v", a.Status)
		}
		return nil
	})
	if got := s.CommitCount("app", "main"); got != 1 {
		t.Errorf("%d commits behind a closed gate", got)
	}
	s.TurnGate("freeze", gatingv1.Opened)
	s.BranchHas("app", "main", "web.yaml", s.mark("web:2", "web"))
}

func TestConcurrentAutomations(t *testing.T) {
	s := newHarness(t, system.ImageAutomation)
	files, want := map[string]string{}, map[string]string{}
	const n = 4
	for i := range n {
		policy := fmt.Sprintf("p%d", i)
		files["all.yaml"] += strings.Replace(s.mark(policy+":1", policy), "image", policy, 1)
		want["all.yaml"] += strings.Replace(s.mark(policy+":2", policy), "image", policy, 1)
	}
	s.Git.Commit("app", files)
	s.GitRepository("app")
	for i := range n {
		s.ChooseImage(fmt.Sprintf("p%d", i), fmt.Sprintf("p%d:1", i), fmt.Sprintf("of%d", i))
		s.ImageUpdateAutomation(fmt.Sprintf("a%d", i), "app", func(a *imagev1.ImageUpdateAutomation) {
			a.Spec.PolicySelector = &metav1.LabelSelector{MatchLabels: map[string]string{fmt.Sprintf("of%d", i): "yes"}}
		})
	}
	for i := range n {
		s.ImageUpdateAutomationReady(fmt.Sprintf("a%d", i), metav1.ConditionTrue, "Succeeded", "up-to-date")
	}
	for i := range n {
		s.ChooseImage(fmt.Sprintf("p%d", i), fmt.Sprintf("p%d:2", i))
	}
	s.BranchHas("app", "main", "all.yaml", want["all.yaml"])
	if got := s.CommitCount("app", "main"); got != n+1 {
		t.Errorf("%d commits, want one of each", got)
	}
}

func TestAutomationsOfSameValueStop(t *testing.T) {
	s := newHarness(t, system.ImageAutomation)
	s.Git.Commit("app", map[string]string{"values.yaml": "image:\n  tag: \"1\"\n"})
	s.GitRepository("app")
	for i, policy := range []string{"one", "two"} {
		s.ChooseImage(policy, fmt.Sprintf("app:%s", policy), policy)
		s.ImageUpdateAutomation(fmt.Sprintf("a%d", i), "app", func(a *imagev1.ImageUpdateAutomation) {
			a.Spec.Bindings = []imagev1.Binding{{PolicyRef: meta.LocalObjectReference{Name: policy},
				ValuesFile: &imagev1.ValuesFile{File: "values.yaml", Tag: "image.tag"}}}
		})
	}
	testenv.Eventually(s, "one of the automations stops", func() error {
		all := &imagev1.ImageUpdateAutomationList{}
		if err := s.Client.List(t.Context(), all, client.InNamespace(s.Namespace)); err != nil {
			return err
		}
		for i := range all.Items {
			c := apimeta.FindStatusCondition(all.Items[i].Status.Conditions, reconcile.TypeReady)
			if c != nil && c.Reason == "UpdateFailed" && strings.HasPrefix(c.Message, "values.yaml:2") &&
				strings.HasSuffix(c.Message, "each time. Let only one automation set this value: correct the "+
					"marker, the bindings or spec.policySelector. Then request a reconciliation (SLU-1411)") {
				return nil
			}
		}
		return fmt.Errorf("%d commits", s.CommitCount("app", "main"))
	})
	if got := s.CommitCount("app", "main"); got > 8 {
		t.Errorf("%d commits", got)
	}
}

func TestCommitsOfAPassAreBounded(t *testing.T) {
	automate.LimitCommits(t, 1)
	s := prepareHarness(t, system.ImageAutomation)
	s.Git.Commit("app", map[string]string{"web.yaml": s.mark("web:1", "web"), "api.yaml": s.mark("api:1", "api")})
	s.GitRepository("app")
	s.ChooseImage("web", "web:2")
	s.ChooseImage("api", "api:2")
	s.ImageUpdateAutomation("each", "app", func(a *imagev1.ImageUpdateAutomation) {
		a.Spec.Batch = &imagev1.Batch{PerPolicy: true}
	})
	s.Start() // the first pass sees both policies
	s.HasEvent("each", "UpdateFailed", "more changes are left. The next run commits them")
	s.BranchHas("app", "main", "web.yaml", s.mark("web:2", "web"))
	s.BranchHas("app", "main", "api.yaml", s.mark("api:2", "api"))
	s.ImageUpdateAutomationReady("each", metav1.ConditionTrue, "Succeeded", "")
}

// TestManyChangesAreMadeInSeveralCommits checks that a run commits all changes, also those that are too many for one
// commit.
func TestManyChangesAreMadeInSeveralCommits(t *testing.T) {
	s := newHarness(t, system.ImageAutomation)
	many := func(version string) string {
		return strings.Repeat("- "+s.mark("web:"+version, "web"), 10_001)
	}
	s.Git.Commit("app", map[string]string{"a.yaml": s.mark("web:1.0.0", "web"), "many.yaml": many("1.0.0")})
	s.GitRepository("app")
	s.ChooseImage("web", "web:2.0.0")
	s.ImageUpdateAutomation("update", "app")
	s.BranchHas("app", "main", "many.yaml", many("2.0.0"))
	s.BranchHas("app", "main", "a.yaml", s.mark("web:2.0.0", "web"))
	s.pushed("update", s.Git.Run("app", "rev-parse", "main"))
	s.ImageUpdateAutomationReady("update", metav1.ConditionTrue, "Succeeded", "repository up-to-date")
	if got := s.Git.Run("app", "rev-list", "--count", "main"); got != "3" {
		t.Errorf("%s commits, want that of the test and 2 of the automation", got)
	}
}
