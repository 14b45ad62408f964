package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
)

func TestLogHasOneLineForEachTransition(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	l := newLoop(&Kernel{Clock: clock}, Kind[*kustomizev1.Kustomization]{})
	k := &kustomizev1.Kustomization{}
	var lines []string
	logger := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}) // only INFO and errors
	ctx := log.IntoContext(context.Background(), logger)
	applied := Ready("ReconciliationSucceeded", "Applied revision: v1").WithMetadata(meta.EventRevisionKey, "v1")
	down := Failed(errors.New("it failed"))
	for n, step := range []struct {
		outcome Outcome
		wait    time.Duration
		want    []string // texts of the first line; none: no line
		more    int      // number of further lines
	}{
		{outcome: Progressing(time.Second, "1 of 2 ready"), want: []string{"1 of 2 ready"}},
		{outcome: Progressing(time.Second, "2 of 2 ready")},
		{outcome: applied, want: []string{`"msg"="Applied revision: v1"`, `"revision"="v1"`, `"duration"="3ms"`,
			`"recovered"=false`}},
		{outcome: applied},
		{outcome: applied.Note("Progressing", "2 created\nConfigMap a created"), want: []string{`"msg"="2 created"`}},
		{outcome: applied.Changed(meta.ProgressingReason, []any{"created", 2}, "2 created\nConfigMap a created"),
			want: []string{`"msg"="Applied revision: v1"`, `"created"=2`}},
		{outcome: Progressing(time.Second, "1 of 2 ready").Changed(meta.ProgressingReason, []any{"created", 2},
			"2 created"),
			want: []string{`"msg"="2 created"`, `"created"=2`}, more: 1},
		{outcome: applied, want: []string{`"msg"="Applied revision: v1"`}},
		{outcome: down, want: []string{`"msg"="failed"`, `"error"="it failed"`}},
		{outcome: down, wait: time.Minute},
		{outcome: down, wait: time.Hour, want: []string{`"error"="it failed"`}},
		{outcome: down, wait: time.Minute},
		{outcome: Failed(errors.New("it failed in another way")), want: []string{`"error"="it failed in another way"`}},
		{outcome: applied, want: []string{`"msg"="Applied revision: v1"`, `"recovered"=true`}},
		{outcome: Waiting("DependencyNotReady", "waiting for 'b'"), want: []string{"waiting for 'b'"}},
		{outcome: Waiting("DependencyNotReady", "waiting for 'b'")},
	} {
		clock.Step(step.wait)
		before := k.DeepCopy()
		setConditions(k, step.outcome)
		lines = nil
		l.logOutcome(ctx, k, before, step.outcome, 3*time.Millisecond)
		if len(lines) != min(len(step.want), 1)+step.more || slices.ContainsFunc(step.want, func(want string) bool {
			return !strings.Contains(lines[0], want)
		}) {
			t.Errorf("step %d: got %q, want one line with %q", n, lines, step.want)
		}
	}
}

// controller-runtime logs the sources of a controller when it starts. A function would be logged as an address.
func TestSourcesHaveNamesInLogs(t *testing.T) {
	for want, s := range map[string]any{"edges": NamedSource{Name: "edges"}, "gates": gateSync{}} {
		if got := fmt.Sprintf("%s", s); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
