package gate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// wave returns a wave of the objects with the label wave.
func wave(name string, change ...func(*gatingv1.Wave)) gatingv1.Wave {
	w := gatingv1.Wave{Name: name, Selector: metav1.LabelSelector{MatchLabels: map[string]string{"wave": name}}}
	for _, c := range change {
		c(&w)
	}
	return w
}

func atMost(n int32) func(*gatingv1.Wave) {
	return func(w *gatingv1.Wave) { w.MaxConcurrent = &meta.Amount{Number: n} }
}

func soak(d time.Duration) func(*gatingv1.Wave) {
	return func(w *gatingv1.Wave) { w.Soak = &meta.Duration{Duration: d} }
}

// inWave puts a Kustomization behind the gate release, in a wave.
func inWave(name string) func(*kustomizev1.Kustomization) {
	return func(k *kustomizev1.Kustomization) {
		behind("release")(k)
		if name != "" {
			k.Labels = map[string]string{"wave": name}
		}
	}
}

// wavedGate creates the gate release, which is open, with waves.
func (s *harness) wavedGate(waves []gatingv1.Wave, change ...func(*gatingv1.Gate)) {
	s.Helper()
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "release"},
		Spec: gatingv1.GateSpec{Interval: meta.Duration{Duration: time.Minute}, Default: gatingv1.Opened, Waves: waves}}
	for _, c := range change {
		c(g)
	}
	s.Create(g)
	s.GateOpened("release", metav1.ConditionTrue, "Gate opened by default")
}

// progress waits until the gate says how far a commit has come through its waves.
func (s *harness) progress(commit, text string) gatingv1.WaveProgress {
	s.Helper()
	g := &gatingv1.Gate{}
	testenv.Eventually(s, "progress of "+commit, func() error {
		if err := s.Get(g, "release"); err != nil {
			return err
		}
		if w := g.Status.Waves; len(w) != 1 || !strings.HasSuffix(w[0].Revision, commit) ||
			!strings.Contains(w[0].Message, text) {
			return fmt.Errorf("%+v", w)
		}
		return nil
	})
	return g.Status.Waves[0]
}

// waitsAtGate waits until a Kustomization says that it waits with a commit, and why.
func (s *harness) waitsAtGate(name, commit, text string) {
	s.Helper()
	k := &kustomizev1.Kustomization{}
	testenv.Eventually(s, name+" waits", func() error {
		if err := s.Get(k, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(k.Status.Conditions, meta.ApprovedCondition)
		if p := k.Status.Pending; c == nil || c.Status != metav1.ConditionFalse || p == nil ||
			!strings.HasSuffix(p.Revision, commit) || !strings.Contains(c.Message, text) {
			return fmt.Errorf("%+v, pending %+v", c, p)
		}
		return nil
	})
}

// commitEach commits a ConfigMap for each Kustomization that [harness.fleet] creates.
func (s *harness) commitEach(values map[string]string) string {
	s.Helper()
	files := map[string]string{}
	for name, value := range values {
		files[name+"/cm.yaml"] = system.ConfigMap(name, value)
	}
	return s.Git.Commit("app", files)
}

// fleet creates Kustomizations in waves, and waits until they have the first commit.
func (s *harness) fleet(waves map[string]string) (first string) {
	s.Helper()
	values := map[string]string{}
	for name := range waves {
		values[name] = "1"
	}
	first = s.commitEach(values)
	s.GitRepository("app")
	for name, w := range waves {
		s.Kustomization(name, "app", name, inWave(w))
	}
	for name := range waves {
		s.Ready(name, first)
	}
	return first
}

func TestWavesFollowEachOther(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.wavedGate([]gatingv1.Wave{wave("canary"), wave("empty"), wave("eu", atMost(1))})
	first := s.fleet(map[string]string{"a": "canary", "b": "eu", "c": "eu", "d": ""})
	s.progress(first, "all objects have revision 'main@sha1:"+first+"'; wave 'empty' selects no object")

	t.Log("an object that is unhealthy holds its wave")
	second := s.commitEach(map[string]string{"a": "bad", "b": "2", "c": "2", "d": "2"})
	s.RequestFetch("app")
	s.progress(second, "wave 'canary': 0 of 1 have revision 'main@sha1:"+second+"' and are Ready, waits: "+
		"Kustomization '"+s.Namespace+"/a' is not Ready")
	s.waitsAtGate("b", second, "gate '"+s.Namespace+"/release' holds wave 'eu' until wave 'canary' is Ready: "+
		"Kustomization '"+s.Namespace+"/a' failed with the revision")
	s.waitsAtGate("d", second, "holds the last wave (objects that no wave selects) until wave 'canary' is Ready")
	for _, name := range []string{"b", "c", "d"} {
		s.ConfigMapHas(name, "1")
	}

	t.Log("drift of those that wait is corrected, to what they have")
	s.mergeConfigMap("d", `{"data":{"k":"drifted"}}`)
	s.ConfigMapHas("d", "1")

	t.Log("the waves go on when it is repaired")
	s.repair("a")
	for _, name := range []string{"a", "b", "c", "d"} {
		s.Ready(name, second)
	}
	p := s.progress(second, "all objects have revision")
	if !p.Complete || p.Wave != "" || fmt.Sprint(p.Passed) != "[canary eu]" {
		t.Errorf("progress is %+v", p)
	}
}
