package gate_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/gate/request"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// reverted waits until a Kustomization is Ready with a commit that it went back to from another one.
func (s *harness) reverted(name, from, to string) {
	s.Helper()
	k := s.Ready(name, to)
	testenv.Eventually(s, name+" says that it went back", func() error {
		if err := s.Get(k, name); err != nil {
			return err
		}
		r := k.Status.Reverted
		if r == nil || !strings.HasSuffix(r.From, from) || !strings.HasSuffix(r.To, to) ||
			r.Gate != s.Namespace+"/release" || r.Since.IsZero() || !strings.Contains(r.Reason, "is unhealthy") {
			return fmt.Errorf("%+v", r)
		}
		for _, c := range k.Status.Conditions {
			if c.Type == "Ready" && c.Status == metav1.ConditionTrue && strings.Contains(c.Message, "reverted from") {
				return nil
			}
		}
		return fmt.Errorf("%+v", k.Status.Conditions)
	})
}

// revertedFrom prepares two Kustomizations that went back from a commit of which one is unhealthy. That one depends on
// the other: otherwise it may fail before the other has the commit, which then has nothing to go back from.
func (s *harness) revertedFrom() (first, second string) {
	s.Helper()
	s.WatchingGate("release", gatingv1.OnFailureRevert)
	first = s.Git.Commit("app", map[string]string{"app/a.yaml": system.ConfigMap("a", "1"),
		"app/b.yaml": system.ConfigMap("b", "1"), "other/c.yaml": system.ConfigMap("c", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "app", behind("release"), func(k *kustomizev1.Kustomization) {
		k.Spec.DependsOn = []kustomizev1.DependencyReference{{NamespacedName: meta.NamespacedName{Name: "other"}}}
	})
	s.Kustomization("other", "app", "other", behind("release"))
	s.Ready("app", first)
	s.Ready("other", first)
	second = s.Git.Commit("app", map[string]string{"app/a.yaml": system.ConfigMap("a", "bad"), "app/b.yaml": "",
		"app/d.yaml": system.ConfigMap("d", "2"), "other/c.yaml": system.ConfigMap("c", "2")})
	s.RequestFetch("app")
	s.reverted("app", second, first)
	s.reverted("other", second, first)
	return first, second
}

func TestFailedRevisionIsReverted(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	first, second := s.revertedFrom()
	for name, value := range map[string]string{"a": "1", "b": "1", "c": "1"} {
		s.ConfigMapHas(name, value)
	}
	s.Gone(&corev1.ConfigMap{}, "d")
	s.HasEvent("app", "Reverted", second)
	s.HasEvent("release", "GateClosed", second)

	t.Log("the gate refuses this revision only, also after a restart; drift is corrected to the healthy one")
	s.GateOpened("release", metav1.ConditionTrue, "except for revision 'main@sha1:"+second+"', which failed")
	s.Stop()
	s.mergeConfigMap("a", `{"data":{"k":"drifted"}}`)
	s.Start()
	s.ConfigMapHas("a", "1")
	s.mergeConfigMap("c", `{"data":{"k":"drifted"}}`)
	s.ConfigMapHas("c", "1")
	s.reverted("app", second, first)
	k := &kustomizev1.Kustomization{}
	testenv.Eventually(t, "the failed revision waits", func() error {
		if err := s.Get(k, "app"); err != nil {
			return err
		}
		if p := k.Status.Pending; p == nil || !strings.HasSuffix(p.Revision, second) {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})

	t.Log("a newer revision passes by the gate's own rules")
	third := s.Git.Commit("app", map[string]string{"app/a.yaml": system.ConfigMap("a", "3")})
	s.RequestFetch("app")
	if k := s.Ready("app", third); k.Status.Reverted != nil {
		t.Errorf("status.reverted is %+v", k.Status.Reverted)
	}
	s.Ready("other", third)
	s.ConfigMapHas("c", "2")

	t.Log("it fails later, within the soak time: they go back to what was healthy last, which is not the first one")
	fourth := s.Git.Commit("app", map[string]string{"app/a.yaml": system.ConfigMap("a", "bad"),
		"other/c.yaml": system.ConfigMap("c", "4")})
	s.RequestFetch("app")
	s.reverted("app", fourth, third)
	s.reverted("other", fourth, third)
	s.ConfigMapHas("c", "2")

	t.Log("a person approves the failed revision by its name")
	s.repair("a") // before it comes again
	s.nameRevision("release", fourth)
	s.ConfigMapHas("a", "bad")
	s.Ready("other", fourth)
	s.Ready("app", fourth)
}

func TestUnhealthyRevertStops(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.WatchingGate("release", gatingv1.OnFailureRevert)
	first := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", behind("release"), func(k *kustomizev1.Kustomization) {
		k.Spec.HealthCheckExprs[0].Failed = "data.k == 'bad' || has(data.broken)"
		k.Spec.HealthCheckExprs[0].Current = "data.k != 'bad' && !has(data.broken)"
	})
	s.Ready("app", first)

	t.Log("what broke it remains after it went back")
	s.mergeConfigMap("a", `{"data":{"broken":"yes"}}`)
	s.NotReady(&kustomizev1.Kustomization{}, "app", "HealthCheckFailed",
		"cannot go back: no earlier revision was healthy. Repair the objects in the "+
			"cluster, or approve a newer revision by its name")
	s.GateOpened("release", metav1.ConditionFalse, "is unhealthy")
	s.mergeConfigMap("a", `{"data":{"broken":null}}`)
	s.Ready("app", first)
	s.GateOpened("release", metav1.ConditionTrue, "except for")
	second := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "2")})
	s.RequestFetch("app")
	s.Ready("app", second)
	s.mergeConfigMap("a", `{"data":{"broken":"yes"}}`)
	k := &kustomizev1.Kustomization{}
	s.NotReady(k, "app", "HealthCheckFailed", "that the Kustomization went back to is unhealthy, too")
	s.NotReady(k, "app", "HealthCheckFailed",
		"Repair the objects in the cluster, or approve a newer revision at gate '"+s.Namespace+"/release' by its name")
	s.says(k, "app", "Reconciling", "", "", "")
	s.GateOpened("release", metav1.ConditionFalse, "failed")
	s.ConfigMapHas("a", "1")

	t.Log("a person repairs it")
	s.mergeConfigMap("a", `{"data":{"broken":null}}`)
	s.reverted("app", second, first)
	s.GateOpened("release", metav1.ConditionTrue, "except for")
}

func TestRevertNeedsArtifact(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	s.WatchingGate("release", gatingv1.OnFailureRevert)
	first := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", behind("release"))
	s.Ready("app", first)
	second := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "2")})
	s.RequestFetch("app")
	s.Ready("app", second)

	t.Log("the retained artifacts are lost")
	s.Stop()
	if err := os.RemoveAll(filepath.Join(s.Storage, "applied")); err != nil {
		t.Fatal(err)
	}
	s.Start()
	s.mergeConfigMap("a", `{"data":{"k":"drifted"}}`) // healthy, as its health may be seen before the drift
	s.ConfigMapHas("a", "2")
	third := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "bad")})
	s.RequestFetch("app")
	s.reverted("app", third, second)
}

// goBack asks a gate to refuse a revision for a Kustomization, as sluice rollback does.
func (s *harness) goBack(name, revision, reason string) {
	s.Helper()
	g := &gatingv1.Gate{}
	if err := s.Get(g, "release"); err != nil {
		s.Fatal(err)
	}
	before := g.DeepCopy()
	request.Request{Prefix: gatingv1.RefusePrefix, User: "admin", Revision: "main@sha1:" + revision, Reason: reason,
		Object: "Kustomization/" + s.Namespace + "/" + name}.Annotate(g, time.Now())
	if err := s.Client.Patch(s.Context(), g, client.MergeFrom(before)); err != nil {
		s.Fatal(err)
	}
}

func TestPersonMakesOneObjectGoBack(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	s.WatchingGate("release", gatingv1.OnFailureRevert)
	first := s.Git.Commit("app", map[string]string{"app/a.yaml": system.ConfigMap("a", "1"),
		"other/c.yaml": system.ConfigMap("c", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "app", behind("release"))
	s.Kustomization("other", "app", "other", behind("release"))
	s.Ready("app", first)
	s.Ready("other", first)
	second := s.Git.Commit("app", map[string]string{"app/a.yaml": system.ConfigMap("a", "2"),
		"other/c.yaml": system.ConfigMap("c", "2")})
	s.RequestFetch("app")
	s.Ready("other", second)
	if p := s.Ready("app", second).Status.Previous; p == nil || !strings.HasSuffix(p.Revision, first) {
		t.Fatalf("status.previous is %+v", p)
	}

	t.Log("a request that names another revision does nothing")
	s.goBack("app", first, "wrong")
	testenv.Eventually(t, "the request is handled", func() error {
		g := &gatingv1.Gate{}
		if err := s.Get(g, "release"); err != nil {
			return err
		}
		if g.Status.HandledRefusal == "" {
			return errors.New("it is not handled")
		}
		return nil
	})

	s.goBack("app", second, "errors in checkout")
	s.wentBackFor("errors in checkout", second, first)
	s.ConfigMapHas("a", "1")
	s.ConfigMapHas("c", "2")
	s.GateOpened("release", metav1.ConditionTrue, "except for revision 'main@sha1:"+second+"', which")

	t.Log("it stays so after a restart, and drift is corrected to it")
	s.Stop()
	s.mergeConfigMap("a", `{"data":{"k":"drifted"}}`)
	s.Start()
	s.ConfigMapHas("a", "1")
	s.wentBackFor("errors in checkout", second, first)
	if s.Ready("other", second).Status.Reverted != nil {
		t.Error("another object went back")
	}

	t.Log("a newer revision passes")
	third := s.Git.Commit("app", map[string]string{"app/a.yaml": system.ConfigMap("a", "3")})
	s.RequestFetch("app")
	if r := s.Ready("app", third).Status.Reverted; r != nil {
		t.Errorf("status.reverted is %+v", r)
	}

	t.Log("a revision is allowed again by its name, and the request is not repeated")
	s.goBack("app", third, "slow")
	s.wentBackFor("slow", third, first)
	s.nameRevision("release", third)
	s.ConfigMapHas("a", "3")
	if r := s.Ready("app", third).Status.Reverted; r != nil {
		t.Errorf("status.reverted is %+v", r)
	}
}

// wentBackFor waits until app went back from a commit to another one because a person asked for it.
func (s *harness) wentBackFor(reason, from, to string) {
	s.Helper()
	k := &kustomizev1.Kustomization{}
	testenv.Eventually(s, "app went back", func() error {
		if err := s.Get(k, "app"); err != nil {
			return err
		}
		r := k.Status.Reverted
		if r == nil || !strings.HasSuffix(r.From, from) || !strings.HasSuffix(r.To, to) || r.By == "" ||
			!strings.Contains(r.Reason, "made Kustomization '"+s.Namespace+"/app' go back: "+reason) {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
}
