package ui

import (
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/ui/state"
)

func TestUsageIsKeptByMinuteWhileItIsShown(t *testing.T) {
	var kept usages
	at := time.Unix(6000, 0)
	look := func(cpu int64, after time.Duration) *usage {
		at = at.Add(after)
		return kept.add(&state.Workload{ID: "Deployment/a/web", Usage: state.Usage{CPU: cpu, Memory: cpu << 20}}, at)
	}
	if got := look(5, 0); got.CPU[29] != 5 || got.CPU[28] != -1 || got.CPU[0] != -1 || got.Memory[29] != 5<<20 {
		t.Errorf("at first: %+v", got)
	}
	look(6, 30*time.Second)
	if got := look(7, time.Minute); got.CPU[29] != 7 || got.CPU[28] != 6 || got.CPU[27] != -1 {
		t.Errorf("a minute later: %+v", got)
	}
	if got := look(8, 3*time.Minute); got.CPU[29] != 8 || got.CPU[28] != -1 || got.CPU[27] != -1 || got.CPU[26] != 7 {
		t.Errorf("after a time without requests: %+v", got)
	}
	if got := look(9, 48*time.Hour); got.CPU[29] != 9 || got.CPU[28] != -1 || got.CPU[0] != -1 {
		t.Errorf("two days later: %+v", got)
	}
	if got := look(0, time.Minute); got != nil {
		t.Errorf("of who may not read usage: %+v", got)
	}
}
