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
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// rival starts a writer that sets a value whenever it changes, like a competing controller. It counts the writes.
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
					s.Errorf("%s cannot patch %s: %v", fieldManager, name, err)
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

func TestContentionIsReportedAndEnds(t *testing.T) {
	t.Parallel()
	contention := apply.ContentionOptions{Threshold: 4, Window: time.Hour, MinDelay: time.Minute, MaxDelay: time.Hour}
	clock := testingclock.NewFakeClock(time.Now())
	s := newHarness(t, func(o *options.Options) { o.Contention, o.Clock = contention, clock })
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1"),
		"b.yaml": system.ConfigMap("b", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "")
	s.Ready("app", commit)
	count, stop := s.rival("autotuner", "a", "9")
	s.drifted("app", "DriftContested", "ConfigMap/"+s.Namespace+"/a: autotuner changes .data.k repeatedly",
		"spec.ignore", "ssa: Merge")
	s.HasEvent("app", "DriftContested", "autotuner changes .data.k")
	testenv.Eventually(t, "writes of the rival", func() error {
		if n := count.Load(); n < int64(contention.Threshold) {
			return fmt.Errorf("%d writes before the contention was detected, want about %d", n, contention.Threshold)
		}
		return nil
	})
	if n := count.Load(); n > int64(contention.Threshold)+1 {
		t.Errorf("%d writes before the contention was detected, want about %d", n, contention.Threshold)
	}

	t.Log("other objects are corrected at once, and the Kustomization stays Ready")
	passes := 0
	pass := func() {
		t.Helper()
		passes++
		s.edit(fmt.Sprintf("person-%d", passes), &corev1.ConfigMap{}, "b", `{"data":{"k":"9"}}`)
		s.ConfigMapHas("b", "1")
	}
	pass()
	s.Ready("app", commit)

	t.Log("the delay doubles with each correction")
	s.drifted("app", "DriftContested", fmt.Sprintf("corrected %d times", contention.Threshold))
	corrects := func(delay time.Duration, times int) {
		t.Helper()
		clock.Step(delay - time.Second)
		pass()
		s.drifted("app", "DriftContested", fmt.Sprintf("corrected %d times", times-1))
		clock.Step(time.Second)
		pass()
		s.drifted("app", "DriftContested", fmt.Sprintf("corrected %d times", times))
	}
	corrects(contention.MinDelay, contention.Threshold+1)
	corrects(2*contention.MinDelay, contention.Threshold+2)

	t.Log("the contention ends when the rival stops")
	s.ConfigMapHas("a", "9")
	stop()
	clock.Step(4 * contention.MinDelay)
	s.RequestReconcile(&kustomizev1.Kustomization{}, "app")
	s.ConfigMapHas("a", "1")
	s.drifted("app", "DriftContested", fmt.Sprintf("corrected %d times", contention.Threshold+3))
	clock.Step(contention.Window + time.Second)
	s.RequestReconcile(&kustomizev1.Kustomization{}, "app")
	s.drifted("app", "")
	s.HasEvent("app", "DriftResolved", "match what was applied")
}
