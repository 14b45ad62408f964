package reconcile

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestRequeueAfter(t *testing.T) {
	kernel := &Kernel{Clock: clock.RealClock{}, Retry: Retry{Min: time.Second, Max: time.Hour}}
	l := newLoop(kernel, Kind[*kustomizev1.Kustomization]{})
	plain, withRetry := &kustomizev1.Kustomization{}, &kustomizev1.Kustomization{}
	plain.Name, withRetry.Name = "plain", "with-retry-interval"
	plain.Spec.Interval = meta.Duration{Duration: 3 * time.Second}
	withRetry.Spec.Interval, withRetry.Spec.RetryInterval = meta.Duration{Duration: time.Hour},
		&meta.Duration{Duration: time.Minute}
	failure := Failed(errors.New("it failed"))
	for n, c := range []struct {
		obj     *kustomizev1.Kustomization
		outcome Outcome
		want    time.Duration
	}{
		{obj: plain, outcome: Ready("Ready", ""), want: 3 * time.Second},
		{obj: plain, outcome: Waiting("Waiting", ""), want: 3 * time.Second},
		// exponential, up to the interval
		{obj: plain, outcome: failure, want: time.Second},
		{obj: plain, outcome: failure, want: 2 * time.Second},
		{obj: plain, outcome: failure, want: 3 * time.Second},
		{obj: plain, outcome: Ready("Ready", ""), want: 3 * time.Second},
		{obj: plain, outcome: failure, want: time.Second}, // the counter was reset
		{obj: plain, outcome: Failed(fault.New("Busy", "it is busy").After(time.Minute)), want: time.Minute},
		{obj: plain, outcome: Failed(fault.New("Wrong", "it is wrong").Final()), want: 3 * time.Second},
		{obj: plain, outcome: Progressing(5*time.Second, ""), want: 5 * time.Second},
		{obj: withRetry, outcome: failure, want: time.Minute},
		{obj: withRetry, outcome: failure, want: time.Minute},
		{obj: withRetry, outcome: Ready("Ready", ""), want: time.Hour},
	} {
		if got := l.requeueAfter(c.obj, c.outcome); got != c.want {
			t.Errorf("case %d: %s is due in %s, want %s", n, c.obj.Name, got, c.want)
		}
	}
	timeout := func(k *kustomizev1.Kustomization) time.Duration { return k.Schedule().Timeout }
	if got := timeout(plain); got != kustomizev1.MinTimeout {
		t.Errorf("the default timeout is %s, want the minimum, as the interval is shorter", got)
	}
	plain.Spec.Timeout = &meta.Duration{Duration: time.Minute}
	if got := timeout(plain); got != time.Minute {
		t.Errorf("the timeout is %s, want 1m", got)
	}
	retry := Retry{Jitter: 0.05}
	for range 1000 {
		if got := retry.jitter(100 * time.Second); got < 95*time.Second || got > 105*time.Second {
			t.Fatalf("jitter(100s) = %s, want 95s to 105s", got)
		}
	}
}

// unreachable is a client whose reads fail.
type unreachable struct{ client.Client }

func (unreachable) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("connection refused")
}

func TestPassThatEndsWithTheProcessIsNoError(t *testing.T) {
	l := newLoop(&Kernel{Client: unreachable{}}, Kind[*kustomizev1.Kustomization]{
		New: func() *kustomizev1.Kustomization { return &kustomizev1.Kustomization{} }})
	ctx, stop := context.WithCancel(t.Context())
	if _, err := l.Reconcile(ctx, ctrl.Request{}); err == nil {
		t.Error("a failure was not reported")
	}
	stop()
	if _, err := l.Reconcile(ctx, ctrl.Request{}); err != nil {
		t.Errorf("reported while the process stops: %v", err)
	}
}
