package kustomization_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/kubeclient"
	"github.com/sluice-gitops/sluice/internal/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// rival sets a value whenever it is another, as a controller does that is sure to be right, and counts how often.
func (s *harness) rival(fieldManager, name, value string) (count *atomic.Int64, stop func()) {
	s.Helper()
	list := &corev1.ConfigMapList{}
	c, err := client.NewWithWatch(testenv.Cluster(s), client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.Context())
	w, err := c.Watch(ctx, list, client.InNamespace(s.Namespace), client.MatchingFields{"metadata.name": name})
	if err != nil {
		s.Fatal(err)
	}
	count = &atomic.Int64{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for e := range w.ResultChan() {
			o, ok := e.Object.(*corev1.ConfigMap)
			if !ok || o.Data["k"] == value {
				continue
			}
			patch := fmt.Sprintf(`{"data":{"k":%q}}`, value)
			if err := c.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch)),
				client.FieldOwner(fieldManager)); err != nil {
				if ctx.Err() == nil {
					s.Errorf("%s cannot change %s: %v", fieldManager, name, err)
				}
				return
			}
			count.Add(1)
		}
	}()
	return count, func() {
		cancel()
		w.Stop()
		<-ended
	}
}

func TestAFightIsNamedAndEnds(t *testing.T) {
	fights := apply.ContentionOptions{Threshold: 4, Window: time.Hour, MinDelay: time.Minute, MaxDelay: time.Hour}
	clock := testingclock.NewFakeClock(time.Now())
	s := newHarness(t, func(o *options.Options) { o.Contention, o.Clock = fights, clock })
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1"),
		"b.yaml": system.ConfigMap("b", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "")
	s.Ready("app", commit)
	count, stop := s.rival("autotuner", "a", "9")
	s.drifted("app", "DriftContested", "ConfigMap/"+s.Namespace+"/a: autotuner changes .data.k repeatedly",
		"spec.ignore", "ssa: Merge")
	s.HasEvent("app", "DriftContested", "autotuner changes .data.k")
	testenv.Eventually(t, "the rival's own count", func() error {
		if n := count.Load(); n < int64(fights.Threshold) {
			return fmt.Errorf("it had to change it %d times before it was a fight, want about %d", n, fights.Threshold)
		}
		return nil
	})
	if n := count.Load(); n > int64(fights.Threshold)+1 {
		t.Errorf("the rival had to change it %d times before it was a fight, want about %d", n, fights.Threshold)
	}

	t.Log("others are corrected at once, and it stays Ready")
	passes := 0
	pass := func() {
		t.Helper()
		passes++
		s.edit(fmt.Sprintf("person-%d", passes), &corev1.ConfigMap{}, "b", `{"data":{"k":"9"}}`)
		s.ConfigMapHas("b", "1")
	}
	pass()
	s.Ready("app", commit)

	t.Log("it is slowed down: twice the time for each correction")
	s.drifted("app", "DriftContested", fmt.Sprintf("corrected %d times", fights.Threshold))
	corrects := func(delay time.Duration, times int) {
		t.Helper()
		clock.Step(delay - time.Second)
		pass()
		s.drifted("app", "DriftContested", fmt.Sprintf("corrected %d times", times-1))
		clock.Step(time.Second)
		pass()
		s.drifted("app", "DriftContested", fmt.Sprintf("corrected %d times", times))
	}
	corrects(fights.MinDelay, fights.Threshold+1)
	corrects(2*fights.MinDelay, fights.Threshold+2)

	t.Log("it is over once it stops")
	s.ConfigMapHas("a", "9")
	stop()
	clock.Step(4 * fights.MinDelay)
	s.RequestReconcile(&kustomizev1.Kustomization{}, "app")
	s.ConfigMapHas("a", "1")
	s.drifted("app", "DriftContested", fmt.Sprintf("corrected %d times", fights.Threshold+3))
	clock.Step(fights.Window + time.Second)
	s.RequestReconcile(&kustomizev1.Kustomization{}, "app")
	s.drifted("app", "")
	s.HasEvent("app", "DriftResolved", "match what was applied")
}
