package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/manager"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/definitions"
)

// story is a namespace with a gate, a source and a Kustomization, under controllers with a fake clock.
type story struct {
	*testing.T
	client    client.Client
	git       *testenv.Git
	namespace string
	clock     *clocktesting.FakeClock
}

// newStory starts the controllers with a gate. Their clock shows a Thursday at noon.
func newStory(t *testing.T, gate gatingv1.GateSpec) *story {
	t.Helper()
	t.Parallel()
	definitions.Install(t, testenv.Cluster(t))
	cfg := testenv.Cluster(t)
	c, err := client.New(cfg, client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	s := &story{
		T: t, client: c, git: testenv.NewGit(t), namespace: testenv.Namespace(t),
		clock: clocktesting.NewFakeClock(time.Date(2026, 11, 19, 12, 0, 0, 0, time.UTC)),
	}
	var o options.Options
	o.BindFlags(pflag.NewFlagSet("story", pflag.ContinueOnError))
	o.StoragePath, o.StorageAddr, o.MetricsAddr, o.HealthAddr, o.ReceiverAddr, o.EventsAddr, o.ImagesAddr = t.TempDir(),
		"127.0.0.1:0", "0", "0", "0", "0", "0"
	o.WatchAllNamespaces, o.RuntimeNamespace, o.LogLevel, o.Clock = false, s.namespace, "error", s.clock
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- manager.Run(ctx, cfg, o) }()
	t.Cleanup(func() {
		cancel()
		if err := <-result; err != nil {
			t.Errorf("the controllers failed: %v", err)
		}
	})
	gate.Interval = meta.Duration{Duration: 30 * time.Second}
	s.create(&gatingv1.Gate{ObjectMeta: s.named("gate"), Spec: gate})
	return s
}

// named returns metadata with a name in the namespace.
func (s *story) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.namespace, Name: name}
}

func (s *story) create(o client.Object) {
	s.Helper()
	if err := s.client.Create(s.Context(), o); err != nil {
		s.Fatal(err)
	}
}

// app declares a source and its Kustomization. The gate holds one of them.
func (s *story) app(holdSource bool) {
	s.Helper()
	gates := meta.Gated{Gates: []meta.GateReference{{Name: "gate"}}}
	source := &sourcev1.GitRepository{ObjectMeta: s.named("app"), Spec: sourcev1.GitRepositorySpec{
		URL: s.git.URL + "/app", Interval: meta.Duration{Duration: time.Second},
		Reference: &sourcev1.GitRepositoryRef{Branch: "main"},
	}}
	kustomization := &kustomizev1.Kustomization{ObjectMeta: s.named("app"), Spec: kustomizev1.KustomizationSpec{
		Interval: meta.Duration{Duration: time.Hour}, Prune: true, TargetNamespace: s.namespace,
		SourceRef: kustomizev1.SourceReference{Kind: "GitRepository", NamespacedName: meta.NamespacedName{Name: "app"}},
	}}
	if holdSource {
		source.Spec.Gated = gates
	} else {
		kustomization.Spec.Gated = gates
	}
	s.create(source)
	s.create(kustomization)
}

// push commits a value of the app and returns the revision.
func (s *story) push(value string) string {
	s.Helper()
	return "main@sha1:" + s.git.Commit("app", map[string]string{
		"app.yaml": fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\ndata: {k: %q}\n", value),
	})
}

// request annotates the gate, like `kubectl annotate`.
func (s *story) request(annotation string, at time.Time) {
	s.Helper()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{annotation: at.Format(time.RFC3339)}}})
	if err != nil {
		s.Fatal(err)
	}
	if err := s.client.Patch(s.Context(), &gatingv1.Gate{ObjectMeta: s.named("gate")},
		client.RawPatch(types.MergePatchType, patch)); err != nil {
		s.Fatal(err)
	}
}

// gateIs waits until the Opened condition and the times in the status of the gate are as given. Zero times are unset.
func (s *story) gateIs(opened metav1.ConditionStatus, message string, requested, reset time.Time) {
	s.Helper()
	testenv.Eventually(s, "gate condition: "+message, func() error {
		g := &gatingv1.Gate{}
		if err := s.client.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: "gate"}, g); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(g.Status.Conditions, "Opened")
		if c == nil || c.Status != opened || c.Reason != "ReconciliationSucceeded" || c.Message != message {
			return fmt.Errorf("%+v", c)
		}
		if !at(g.Status.RequestedAt, requested) || !at(g.Status.ResetToDefaultAt, reset) {
			return fmt.Errorf("requested at %v, reset at %v", g.Status.RequestedAt, g.Status.ResetToDefaultAt)
		}
		return nil
	})
}

func at(t *meta.Time, want time.Time) bool {
	if t == nil {
		return want.IsZero()
	}
	return t.Time.Equal(want)
}

// hasCondition waits until a condition of the object has a status and a message. With an empty status, it waits until
// the condition does not exist.
func (s *story) hasCondition(o reconcile.Object, condition string, status metav1.ConditionStatus, message string) {
	s.Helper()
	testenv.Eventually(s, fmt.Sprintf("%s is %s", condition, status), func() error {
		if err := s.client.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: "app"}, o); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(o.CommonStatus().Conditions, condition)
		if c == nil && status == "" || c != nil && c.Status == status &&
			(message == "" || c.Reason == "GateClosed" && c.Message == message) {
			return nil
		}
		return fmt.Errorf("%+v", c)
	})
}

func (s *story) waitsForApproval() *kustomizev1.Kustomization {
	s.Helper()
	k := &kustomizev1.Kustomization{}
	s.hasCondition(k, "Approved", metav1.ConditionFalse,
		fmt.Sprintf("Reconciliation is waiting approval, gate '%s/gate' is closed.", s.namespace))
	return k
}

func (s *story) isBlocked() *sourcev1.GitRepository {
	s.Helper()
	g := &sourcev1.GitRepository{}
	s.hasCondition(g, "Blocked", metav1.ConditionTrue,
		fmt.Sprintf("Reconciliation is blocked as gate '%s/gate' is closed.", s.namespace))
	return g
}

// runs waits until the app has a value and its Kustomization is Ready at the revision.
func (s *story) runs(value, revision string) {
	s.Helper()
	testenv.Eventually(s, "the app has value "+value, func() error {
		k, cm := &kustomizev1.Kustomization{}, &corev1.ConfigMap{}
		key := types.NamespacedName{Namespace: s.namespace, Name: "app"}
		if err := errors.Join(s.client.Get(s.Context(), key, k), s.client.Get(s.Context(), key, cm)); err != nil {
			return err
		}
		if cm.Data["k"] != value || k.Status.LastAppliedRevision != revision || !reconcile.IsReady(k) {
			return fmt.Errorf("value %s of revision %s, %+v", cm.Data["k"], k.Status.LastAppliedRevision,
				k.Status.Conditions)
		}
		return nil
	})
}

// waits waits until the gate lists a pending revision, while the app has another value.
func (s *story) waits(revision, running string) {
	s.Helper()
	testenv.Eventually(s, "the gate lists "+revision, func() error {
		g, cm := &gatingv1.Gate{}, &corev1.ConfigMap{}
		err := errors.Join(
			s.client.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: "gate"}, g),
			s.client.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: "app"}, cm))
		switch {
		case err != nil:
			return err
		case cm.Data["k"] != running:
			s.Fatalf("the app has value %s behind the closed gate", cm.Data["k"])
		case g.Status.WaitingCount != 1 || len(g.Status.Waiting) != 1 || g.Status.Waiting[0].Revision != revision:
			return fmt.Errorf("%d waiting: %+v", g.Status.WaitingCount, g.Status.Waiting)
		}
		return nil
	})
}

const (
	openAnnotation  = "open.gate.fluxcd.io/requestedAt"
	closeAnnotation = "close.gate.fluxcd.io/requestedAt"
)

func window(d time.Duration) *meta.Duration { return &meta.Duration{Duration: d} }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func TestGateApprovalForAnHour(t *testing.T) {
	s := newStory(t, gatingv1.GateSpec{Default: gatingv1.Closed, Window: window(time.Hour)})
	s.gateIs(metav1.ConditionFalse, "Gate closed by default", time.Time{}, time.Time{})
	first := s.push("1")
	s.app(false)
	if k := s.waitsForApproval(); k.Status.LastAppliedRevision != "" {
		t.Errorf("revision %s was applied", k.Status.LastAppliedRevision)
	}

	t.Log("an approval opens the gate for an hour")
	opened := s.clock.Now()
	s.request(openAnnotation, opened)
	s.gateIs(metav1.ConditionTrue, "Gate scheduled for closing at "+stamp(opened.Add(time.Hour)), opened,
		opened.Add(time.Hour))
	s.runs("1", first)
	s.hasCondition(&kustomizev1.Kustomization{}, "Approved", metav1.ConditionTrue, "")

	t.Log("changes within the hour are applied")
	s.clock.Step(59 * time.Minute)
	s.runs("2", s.push("2"))

	t.Log("after the hour the gate is closed by default, and changes wait")
	s.clock.Step(time.Minute)
	s.gateIs(metav1.ConditionFalse, "Gate closed by default", opened, opened.Add(time.Hour))
	s.waitsForApproval()
	third := s.push("3")
	s.waits(third, "2")
	testenv.Eventually(t, "the app reports the pending changes", func() error {
		if k := s.waitsForApproval(); k.Status.Pending == nil || k.Status.Pending.Configured != 1 ||
			!reconcile.IsReady(k) {
			return fmt.Errorf("%+v", k.Status)
		}
		return nil
	})

	t.Log("the next approval applies the change")
	again := s.clock.Now()
	s.request(openAnnotation, again)
	s.gateIs(metav1.ConditionTrue, "Gate scheduled for closing at "+stamp(again.Add(time.Hour)), again,
		again.Add(time.Hour))
	s.runs("3", third)
}

func TestGateClosedAheadOfSchedule(t *testing.T) {
	s := newStory(t, gatingv1.GateSpec{Default: gatingv1.Closed, Window: window(time.Hour)})
	first := s.push("1")
	s.app(false)
	opened := s.clock.Now()
	s.request(openAnnotation, opened)
	s.gateIs(metav1.ConditionTrue, "Gate scheduled for closing at "+stamp(opened.Add(time.Hour)), opened,
		opened.Add(time.Hour))
	s.runs("1", first)

	s.clock.Step(10 * time.Minute)
	closed := s.clock.Now()
	s.request(closeAnnotation, closed)
	s.gateIs(metav1.ConditionFalse, "Gate close requested", closed, closed)
	s.waitsForApproval()
	s.waits(s.push("2"), "1")
}

func TestGateMaintenanceWindow(t *testing.T) {
	s := newStory(t, gatingv1.GateSpec{Default: gatingv1.Closed, Window: window(24 * time.Hour)})
	first := s.push("1")
	s.app(true)
	s.isBlocked()

	t.Log("the gate opens at the requested time")
	begin := s.clock.Now().Add(6 * time.Hour)
	s.request(openAnnotation, begin)
	s.clock.Step(6*time.Hour - time.Second)
	if g := s.isBlocked(); g.Status.Artifact != nil {
		t.Errorf("an artifact was stored before the window: %+v", g.Status.Artifact)
	}
	s.announced(begin)
	s.clock.Step(time.Second)
	end := begin.Add(24 * time.Hour)
	s.gateIs(metav1.ConditionTrue, "Gate scheduled for closing at "+stamp(end), begin, end)
	s.runs("1", first)
	s.hasCondition(&sourcev1.GitRepository{}, "Blocked", "", "")

	t.Log("the gate closes a day later")
	s.clock.Step(24 * time.Hour)
	s.gateIs(metav1.ConditionFalse, "Gate closed by default", begin, end)
	s.isBlocked()
	s.waits(s.push("2"), "1")
}

// announced waits until the gate reports the time of its next transition.
func (s *story) announced(next time.Time) {
	s.Helper()
	testenv.Eventually(s, "the gate reports the transition at "+stamp(next), func() error {
		g := &gatingv1.Gate{}
		if err := s.client.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: "gate"}, g); err != nil {
			return err
		}
		if g.Status.NextTransition == nil || !g.Status.NextTransition.At.Time.Equal(next) {
			return fmt.Errorf("%+v", g.Status.NextTransition)
		}
		return nil
	})
}

func TestGateNoDeploysOnFridays(t *testing.T) {
	s := newStory(t, gatingv1.GateSpec{Default: gatingv1.Opened, Window: window(24 * time.Hour)})
	s.gateIs(metav1.ConditionTrue, "Gate opened by default", time.Time{}, time.Time{})
	s.app(true)
	running, revision := "0", s.push("0")
	s.runs(running, revision)
	friday := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	for week := range 3 {
		t.Logf("%s: a CronJob closes the gate for the day", stamp(friday))
		s.clock.SetTime(friday)
		s.request(closeAnnotation, friday)
		saturday := friday.Add(24 * time.Hour)
		s.gateIs(metav1.ConditionFalse, "Gate scheduled for opening at "+stamp(saturday), friday, saturday)
		s.isBlocked()
		next := fmt.Sprint("week ", week)
		pushed := s.push(next)
		s.waits(pushed, running)

		t.Log("on Saturday it opens, and the pending change is applied")
		s.clock.SetTime(saturday)
		s.gateIs(metav1.ConditionTrue, "Gate opened by default", friday, saturday)
		s.runs(next, pushed)
		running, friday = next, friday.AddDate(0, 0, 7)
	}
}

func TestGateFreezeCorrectsDrift(t *testing.T) {
	s := newStory(t, gatingv1.GateSpec{Default: gatingv1.Opened})
	first := s.push("1")
	s.app(true)
	s.runs("1", first)

	closed := s.clock.Now().Add(time.Second)
	s.clock.Step(time.Second)
	s.request(closeAnnotation, closed)
	s.isBlocked()
	second := s.push("2")
	s.waits(second, "1")
	for _, what := range []string{"edited", "edited again"} {
		patch := fmt.Sprintf(`{"data":{"k":%q}}`, what)
		if err := s.client.Patch(t.Context(), &corev1.ConfigMap{ObjectMeta: s.named("app")},
			client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
		s.runs("1", first)
	}
	testenv.Eventually(t, "the source reports the pending revision", func() error {
		g := s.isBlocked()
		if !g.Status.Artifact.HasRevision(first) || !reconcile.IsReady(g) || g.Status.Pending == nil ||
			!strings.HasSuffix(g.Status.Pending.Revision, second) {
			return fmt.Errorf("%+v", g.Status)
		}
		return nil
	})

	t.Log("it stays closed until it is opened by request")
	s.clock.Step(90 * 24 * time.Hour)
	s.isBlocked()
	s.clock.Step(time.Second)
	s.request(openAnnotation, s.clock.Now())
	s.runs("2", second)
	s.hasCondition(&sourcev1.GitRepository{}, "Blocked", "", "")
}
