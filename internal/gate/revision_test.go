package gate_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// afterStaging is a gate that allows what a Kustomization has been Ready at for a time.
func afterStaging(staging string, soak time.Duration) gatingv1.GateSpec {
	return gatingv1.GateSpec{Default: gatingv1.Opened, Checks: []gatingv1.Check{{
		Name: "staging", Interval: &meta.Duration{Duration: 24 * time.Hour},
		Timeout: &meta.Duration{Duration: time.Minute}, // the longest: one that fails runs again after a change only
		Revision: &gatingv1.RevisionCheck{Kind: "Kustomization", Name: staging,
			Soak: &meta.Duration{Duration: soak}},
	}}}
}

// commit pushes a ConfigMap for staging and one for production, and fetches them.
func (s *harness) commit(value string) string {
	s.Helper()
	commit := s.Git.Commit("app", map[string]string{"staging/a.yaml": system.ConfigMap("staging", value),
		"production/a.yaml": system.ConfigMap("production", value)})
	return commit
}

// production creates a Kustomization behind a gate.
func (s *harness) production(name, gate string) {
	s.Helper()
	s.Kustomization(name, "app", "production", func(k *kustomizev1.Kustomization) {
		k.Spec.Gates = system.GateRefs(gate)
	})
}

// promotes waits until the first check of a gate allows a commit, and nothing else.
func (s *harness) promotes(name, commit string) {
	s.Helper()
	testenv.Eventually(s, name+" promotes "+commit, func() error {
		g := &gatingv1.Gate{}
		if err := s.Get(g, name); err != nil {
			return err
		}
		if a := g.Status.ApprovedRevisions; len(a) != 1 || a[0] != "sha1:"+commit ||
			!apimeta.IsStatusConditionTrue(g.Status.Conditions, gatingv1.OpenedCondition) {
			return fmt.Errorf("%+v", g.Status)
		}
		return nil
	})
}

// blockedBy waits until the gates hold a Kustomization for a reason.
func (s *harness) blockedBy(name, says string) {
	s.Helper()
	testenv.Eventually(s, name+" is held: "+says, func() error {
		k := &kustomizev1.Kustomization{}
		if err := s.Get(k, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(k.Status.Conditions, meta.ApprovedCondition)
		if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, says) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

func TestProductionFollowsStagingAfterItsSoak(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakeClock(tenOClock())
	s := newHarness(t, func(o *options.Options) { o.Clock = clock })
	s.GrantAll("default")
	first := s.commit("1")
	s.GitRepository("app")
	s.newGate("production", afterStaging("staging", 2*time.Hour))
	s.gateIs("production", false, "CheckFailed", "no object matches")
	s.production("production", "production")
	s.Kustomization("staging", "app", "staging")
	s.Ready("staging", first)
	g := s.gateIs("production", false, "CheckFailed", "soaks until 2026-11-20T12:00:00Z (2h0m0s in total): "+
		"Kustomization '"+s.Namespace+"/staging' is Ready at it since 2026-11-20T10:00:00Z")
	if n := g.Status.NextTransition; n == nil || stamp(n.At.Time) != "2026-11-20T12:00:00Z" ||
		n.State != gatingv1.Opened {
		t.Errorf("the next transition is %+v", n)
	}
	s.blockedBy("production", "soaks until 2026-11-20T12:00:00Z")

	t.Log("a restart does not start the soak again")
	clock.Step(time.Hour)
	s.Stop()
	s.Start()
	clock.Step(time.Hour - time.Second)
	s.Reconcile(&gatingv1.Gate{}, "production")
	s.gateIs("production", false, "CheckFailed", "soaks until 2026-11-20T12:00:00Z")
	clock.Step(time.Second)
	s.promotes("production", first)
	s.Ready("production", first)

	t.Log("the next commit waits for its own soak")
	second := s.commit("2")
	s.RequestFetch("app")
	s.Ready("staging", second)
	s.gateIs("production", true, "ReconciliationSucceeded", "soaks until 2026-11-20T14:00:00Z")
	s.blockedBy("production", "allows only revision 'main@sha1:"+first)
	clock.Step(2 * time.Hour)
	s.promotes("production", second)
	s.Ready("production", second)
}

func TestPromotedRevisionIsAppliedAfterTheSourceMovedOn(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakeClock(tenOClock())
	s := newHarness(t, func(o *options.Options) { o.Clock = clock })
	s.GrantAll("default")
	spec := afterStaging("staging", 2*time.Hour)
	spec.Schedule = []gatingv1.ScheduleEntry{{State: gatingv1.Closed, Cron: "0 10 * * *",
		Duration: &meta.Duration{Duration: 3 * time.Hour}}}
	s.newGate("production", spec)
	first := s.commit("1")
	s.GitRepository("app")
	s.production("production", "production")
	s.production("lost", "production")
	s.Kustomization("staging", "app", "staging")
	s.Ready("staging", first)
	s.blockedBy("production", "is closed")
	s.blockedBy("lost", "is closed")
	s.checkSays("production", "soaks until 2026-11-20T12:00:00Z")
	clock.Step(2 * time.Hour)
	s.checkSays("production", "allows revision 'main@sha1:"+first)
	var last string
	for _, value := range []string{"2", "3", "4"} { // more than the source retains
		last = s.commit(value)
		s.RequestFetch("app")
		s.Ready("staging", last)
		s.WaitsFor("production", last)
		s.WaitsFor("lost", last)
	}

	t.Log("the schedule opens: production takes what was promoted, and the rest waits")
	s.Stop()
	s.losePromotable("lost")
	clock.Step(time.Hour)
	s.Start()
	s.Ready("production", first)
	s.ConfigMapHas("production", "1")
	s.WaitsFor("production", last)

	t.Log("without the artifact, it waits and says what to do")
	s.recorded(meta.ArtifactFailedReason, "is promoted, but its artifact is not stored")
	s.WaitsFor("lost", last)
	k := &kustomizev1.Kustomization{}
	if err := s.Get(k, "lost"); err != nil || k.Status.LastAppliedRevision != "" {
		t.Errorf("%s is applied (%v)", k.Status.LastAppliedRevision, err)
	}
}

// losePromotable removes what is kept for a Kustomization that waits.
func (s *harness) losePromotable(name string) {
	s.Helper()
	k := &kustomizev1.Kustomization{}
	if err := s.Get(k, name); err != nil {
		s.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(s.Storage, "promotable", string(k.UID)+".*"))
	if err != nil || len(files) == 0 {
		s.Fatalf("%d files are kept for %s (%v)", len(files), name, err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			s.Fatal(err)
		}
	}
}

// checkSays waits until the first check of a gate has a message.
func (s *harness) checkSays(name, says string) {
	s.Helper()
	testenv.Eventually(s, name+" says "+says, func() error {
		g := &gatingv1.Gate{}
		if err := s.Get(g, name); err != nil {
			return err
		}
		if c := g.Status.Checks; len(c) != 1 || !strings.Contains(c[0].Message, says) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

func TestGatesThatWaitForEachOtherAreClosed(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.GrantAll("default")
	s.newGate("one", afterStaging("behind-two", 0))
	s.newGate("two", afterStaging("behind-one", 0))
	s.newGate("self", afterStaging("behind-self", 0))
	for _, name := range []string{"one", "two", "self"} {
		s.production("behind-"+name, name)
	}
	for _, name := range []string{"one", "two", "self"} { // the gates read them from the cache
		s.NotReady(&kustomizev1.Kustomization{}, "behind-"+name, meta.ArtifactFailedReason, "")
	}
	for name, says := range map[string]string{
		"one": "gate '%[1]s/one' → Kustomization '%[1]s/behind-two' → gate '%[1]s/two' → Kustomization " +
			"'%[1]s/behind-one' → gate '%[1]s/one'",
		"two": "form a cycle", "self": "'%[1]s/behind-self' → gate '%[1]s/self'",
	} {
		if strings.Contains(says, "%") {
			says = fmt.Sprintf(says, s.Namespace)
		}
		s.AnnotateGate(name, map[string]any{meta.ReconcileRequestAnnotation: "1"})
		s.gateIs(name, false, "CheckCycle", says)
	}
}

func TestRevisionChecksFailClosed(t *testing.T) {
	t.Parallel()
	s := newHarness(t, func(o *options.Options) { o.NoCrossNamespaceRefs = true })
	s.Kustomization("suspended", "app", "staging", func(k *kustomizev1.Kustomization) { k.Spec.Suspend = true })
	unreadable := afterStaging("suspended", 0)
	unreadable.ServiceAccountName = "stranger"
	selected, elsewhere, remote := afterStaging("", 0), afterStaging("a", 0), afterStaging("a", 0)
	selected.Checks[0].Revision.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "staging"}}
	elsewhere.Checks[0].Revision.Namespace = "kube-system"
	remote.Checks[0].Revision.KubeConfig = &meta.KubeConfigReference{
		SecretRef: &meta.SecretKeyReference{Name: "missing"}}
	invalid := afterStaging("", 0)
	invalid.Checks[0].Revision.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "env", Operator: "?"}}}
	for name, spec := range map[string]gatingv1.GateSpec{"unreadable": unreadable, "selected": selected,
		"elsewhere": elsewhere, "remote": remote, "suspended": afterStaging("suspended", 0), "invalid": invalid} {
		spec.Checks[0].Interval.Duration = time.Second
		s.newGate(name, spec)
	}
	s.gateIs("unreadable", false, "CheckFailed", "stranger' is not allowed to get Kustomization")
	s.gateIs("elsewhere", false, "CheckFailed", "cross-namespace references have been blocked")
	s.gateIs("remote", false, "CheckFailed", "missing' of spec.kubeConfig not found")
	s.gateIs("invalid", false, "InvalidCheck", "check 'staging' is invalid")
	s.GrantAll("default")
	s.gateIs("selected", false, "CheckFailed", "no object matches")
	s.gateIs("suspended", false, "CheckFailed", "suspended' is suspended")
}

func TestRevisionChecksAreValidated(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	both, neither, long, waits := afterStaging("a", 0), afterStaging("", 0), afterStaging("a", 10*365*24*time.Hour),
		afterStaging("a", 0)
	both.Checks[0].Revision.Selector = &metav1.LabelSelector{}
	waits.Checks[0].For = &meta.Duration{Duration: time.Hour}
	kind := afterStaging("a", 0)
	kind.Checks[0].Revision.Kind = "Deployment"
	for says, spec := range map[string]gatingv1.GateSpec{
		"exactly one of name and selector": both, "one of name and selector must": neither,
		"soak must be 720h at most": long, "set revision.soak": waits, "Unsupported value": kind,
	} {
		g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "g"}, Spec: spec}
		g.Spec.Interval = meta.Duration{Duration: time.Minute}
		if err := s.Client.Create(s.Context(), g); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v", says, err)
		}
	}
}
