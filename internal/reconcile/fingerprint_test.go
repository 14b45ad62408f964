package reconcile

import (
	"errors"
	"testing"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
)

func TestFailuresWithTheSameFingerprint(t *testing.T) {
	for name, c := range map[string]struct {
		first, second string
		differ        bool
	}{
		"counters": {first: "exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5",
			second: "exceeded quota: q, requested: pods=3, used: pods=4, limited: pods=5"},
		"sizes":    {first: "used: memory=1Gi", second: "used: memory=1536Mi"},
		"duration": {first: "timeout after 1m30.5s", second: "timeout after 2m1s"},
		"time":     {first: "paused until 15:04:05", second: "paused until 16:00:00"},
		"order": {first: "2 objects refused: ConfigMap/a is invalid; ConfigMap/b is invalid",
			second: "2 objects refused: ConfigMap/b is invalid; ConfigMap/a is invalid"},
		"waiting for a gate": {first: "it failed", second: "it failed; waiting at gate 'release' for v2"},
		"another object": {first: "Deployment/apps/web-1 is invalid", second: "Deployment/apps/web-2 is invalid",
			differ: true},
		"another cause":   {first: "connection refused", second: "no such host", differ: true},
		"one more object": {first: "a is invalid", second: "a is invalid; b is invalid", differ: true},
	} {
		if (fingerprint("Failed", c.first) != fingerprint("Failed", c.second)) != c.differ {
			t.Errorf("%s: %q and %q: want different fingerprints: %t", name, c.first, c.second, c.differ)
		}
	}
	if fingerprint("BuildFailed", "x") == fingerprint("HealthCheckFailed", "x") {
		t.Error("the reason is not part of the fingerprint")
	}
}

// collector counts events.
type collector struct{ messages []string }

func (c *collector) Emit(_ string, _ Object, e Event) { c.messages = append(c.messages, e.Message) }

func TestRepeatedFailureIsOneEvent(t *testing.T) {
	events := &collector{}
	l := newLoop(&Kernel{Events: events}, Kind[*kustomizev1.Kustomization]{})
	k := &kustomizev1.Kustomization{}
	full := func(used string) Outcome { return Failed(errors.New("exceeded quota: q, used: pods=" + used)) }
	for n, step := range []struct {
		outcome Outcome
		event   string // empty: none
	}{
		{outcome: Ready("ReconciliationSucceeded", "applied"), event: "applied"},
		{outcome: full("5"), event: "exceeded quota: q, used: pods=5 (SLU-1005)"},
		{outcome: full("6")},
		{outcome: Progressing(1, "applying"), event: "applying"},
		{outcome: full("7")},
		{outcome: Failed(errors.New("connection refused")), event: "connection refused (SLU-1005)"},
		{outcome: Ready("ReconciliationSucceeded", "applied"), event: "applied"},
		{outcome: full("8"), event: "exceeded quota: q, used: pods=8 (SLU-1005)"},
		{outcome: Ready("ReconciliationSucceeded", "applied"), event: "applied"},
		{outcome: full("8"), event: "exceeded quota: q, used: pods=8 (SLU-1005)"},
	} {
		before := k.DeepCopy()
		setConditions(k, step.outcome)
		events.messages = nil
		l.emit(k, before, step.outcome)
		if got := append(events.messages, "")[0]; got != step.event || len(events.messages) > 1 {
			t.Errorf("step %d: the events are %q, want %q", n, events.messages, step.event)
		}
	}
}
