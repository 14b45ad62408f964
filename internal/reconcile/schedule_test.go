package reconcile

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
)

func TestWhenAnObjectIsDueAgain(t *testing.T) {
	l := newLoop(&Kernel{Retry: Retry{Min: time.Second, Max: time.Hour}}, Kind[*kustomizev1.Kustomization]{})
	plain, impatient := &kustomizev1.Kustomization{}, &kustomizev1.Kustomization{}
	plain.Name, impatient.Name = "plain", "impatient"
	plain.Spec.Interval = metav1.Duration{Duration: 3 * time.Second}
	impatient.Spec.Interval, impatient.Spec.RetryInterval = metav1.Duration{Duration: time.Hour},
		&metav1.Duration{Duration: time.Minute}
	failure := Failed(errors.New("it failed"))
	for n, c := range []struct {
		of   *kustomizev1.Kustomization
		then Outcome
		want time.Duration
	}{
		{plain, Ready("Ready", ""), 3 * time.Second},
		{plain, Waiting("Waiting", ""), 3 * time.Second},
		// twice as long each time, up to the interval
		{plain, failure, time.Second}, {plain, failure, 2 * time.Second}, {plain, failure, 3 * time.Second},
		{plain, Ready("Ready", ""), 3 * time.Second},
		{plain, failure, time.Second}, // counted anew
		{plain, Failed(fault.New("Busy", "it is busy").After(time.Minute)), time.Minute},
		{plain, Failed(fault.New("Wrong", "it is wrong").Final()), 3 * time.Second},
		{plain, Progressing(5*time.Second, ""), 5 * time.Second},
		{impatient, failure, time.Minute}, {impatient, failure, time.Minute},
		{impatient, Ready("Ready", ""), time.Hour},
	} {
		if got := l.requeue(c.of, c.then); got != c.want {
			t.Errorf("%d: %s is due in %s, want %s", n, c.of.Name, got, c.want)
		}
	}
	timeout := func(k *kustomizev1.Kustomization) time.Duration { return k.Schedule().Timeout }
	if got := timeout(plain); got != 3*time.Second {
		t.Errorf("without a timeout it is %s, not the interval", got)
	}
	plain.Spec.Timeout = &metav1.Duration{Duration: time.Minute}
	if got := timeout(plain); got != time.Minute {
		t.Errorf("the timeout is %s", got)
	}
	spread := Retry{Jitter: 0.05}
	for range 1000 {
		if got := spread.jitter(100 * time.Second); got < 95*time.Second || got > 105*time.Second {
			t.Fatalf("an interval of 100s became %s", got)
		}
	}
}
