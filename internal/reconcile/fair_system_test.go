package reconcile_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestSlowNamespaceDoesNotHoldOthers has a namespace whose passes never end while the test runs.
func TestSlowNamespaceDoesNotHoldOthers(t *testing.T) {
	hostile := testenv.Namespace(t)
	release := make(chan struct{})
	var slow, most atomic.Int32
	s := &step{namespaces: []string{hostile}, reconcile: func(_ context.Context, p *pass) reconcile.Outcome {
		if p.Object.Namespace == hostile {
			n := slow.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			<-release
			slow.Add(-1)
		}
		return reconcile.Ready("Succeeded", "applied 1")
	}}
	b := newBench(t, s) // with two workers
	t.Cleanup(func() { close(release) })
	for i := range 10 {
		if err := b.client.Create(context.Background(), &sourcev1.GitRepository{
			ObjectMeta: metav1.ObjectMeta{Namespace: hostile, Name: fmt.Sprint("slow-", i)},
			Spec: sourcev1.GitRepositorySpec{URL: "https://example.com/x",
				Interval: meta.Duration{Duration: time.Hour}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Eventually(t, "the hostile namespace has all workers", func() error {
		if n := slow.Load(); n < 2 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	before := s.count()
	b.patch(`{"spec":{"url":"https://example.com/y"}}`)
	// The client reads from a cache: what it returns may be older than the change.
	testenv.Eventually(t, "the object of another namespace is reconciled", func() error {
		if n := s.count(); n <= before {
			return fmt.Errorf("%d passes", n)
		}
		return nil
	})
	b.until("it is Ready", func(o *sourcev1.GitRepository) error {
		if o.Generation < 2 || o.Status.ObservedGeneration != o.Generation {
			return fmt.Errorf("generation %d, %d observed", o.Generation, o.Status.ObservedGeneration)
		}
		return isReadyWith("1")(o)
	})
	if n := most.Load(); n != 2 {
		t.Errorf("%d slow passes at the same time, want 2", n)
	}
}
