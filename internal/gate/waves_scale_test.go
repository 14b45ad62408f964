package gate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// TestWavesCostFewWrites counts the requests of a roll-out to 30 objects, and to 100 in full. Each of them writes its
// status when it begins to wait, and when it moves. The gate writes its status once per second at most.
func TestWavesCostFewWrites(t *testing.T) {
	t.Parallel()
	members := 30
	if testenv.IsFull() {
		members = 100
	}
	s := newHarness(t)
	s.wavedGate([]gatingv1.Wave{wave("canary", atMost(5)), wave("eu", atMost(20))})
	files := map[string]string{}
	for n := range members {
		files[fmt.Sprintf("k%d/cm.yaml", n)] = system.ConfigMap(fmt.Sprintf("k%d", n), "1")
	}
	first := s.Git.Commit("app", files)
	s.GitRepository("app")
	for n := range members {
		s.Kustomization(fmt.Sprintf("k%d", n), "app", fmt.Sprintf("k%d", n), func(k *kustomizev1.Kustomization) {
			k.Spec.Gates = system.GateRefs("release")
			k.Labels = map[string]string{"wave": []string{"canary", "eu", "eu", "rest"}[n%4]}
		})
	}
	s.allHave(members, first)
	s.progress(first, "all objects have revision")

	for n := range members {
		files[fmt.Sprintf("k%d/cm.yaml", n)] = system.ConfigMap(fmt.Sprintf("k%d", n), "2")
	}
	second := s.Git.Commit("app", files)
	s.Requests.Reset()
	began := time.Now()
	s.RequestFetch("app")
	s.allHave(members, second)
	s.progress(second, "all objects have revision")
	count := func(text string) (n int) {
		for _, line := range s.Requests.Matching(text) {
			if strings.HasPrefix(line, "PATCH ") || strings.HasPrefix(line, "PUT ") {
				n++
			}
		}
		return n
	}
	gates, objects := count("/gates/release/status"), count("/kustomizations/")
	reads := len(s.Requests.Matching("/gates")) - gates
	t.Logf("%d writes of the gate, %d writes of %d objects, %d other requests of gates", gates, objects, members, reads)
	if gates > members+int(time.Since(began).Seconds()) || objects > 6*members || reads > 5 {
		t.Error("too many requests")
	}
}

// allHave waits until all Kustomizations of the namespace are Ready at a commit.
func (s *harness) allHave(members int, commit string) {
	s.Helper()
	testenv.Eventually(s, "all have "+commit, func() error {
		ready := 0
		for n := range members {
			k := &kustomizev1.Kustomization{}
			if err := s.Get(k, fmt.Sprintf("k%d", n)); err != nil {
				return err
			}
			if reconcile.IsReady(k) && strings.HasSuffix(k.Status.LastAppliedRevision, commit) {
				ready++
			}
		}
		if ready < members {
			return fmt.Errorf("%d of %d", ready, members)
		}
		return nil
	})
}
