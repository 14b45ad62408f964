package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// clusterRecorder keeps what is written to the cluster, as "reason: note".
type clusterRecorder struct{ notes []string }

func (r *clusterRecorder) AnnotatedEventf(_, _ runtime.Object, _ map[string]string, _, reason, _, note string,
	args ...any) {
	r.notes = append(r.notes, reason+": "+fmt.Sprintf(note, args...))
}

// TestOneEventSaysThatAnObjectIsReadyByAChange runs two passes that change something. Alerts have two events for each;
// the cluster has one.
func TestOneEventSaysThatAnObjectIsReadyByAChange(t *testing.T) {
	changed := func(revision, summary string) func(context.Context, *pass) reconcile.Outcome {
		return func(context.Context, *pass) reconcile.Outcome {
			return reconcile.Ready("Succeeded", "applied %s", revision).Changed("Progressing", []any{"created", 1},
				summary)
		}
	}
	s := &step{reconcile: changed("one", "1 created")}
	b := newBench(t, s)
	b.until("Ready", has("Ready", metav1.ConditionTrue, "Succeeded"))
	s.set(changed("two", "1 configured"))
	b.patch(`{"spec":{"url":"https://example.com/y"}}`)
	b.until("Ready again", has("Ready", metav1.ConditionTrue, "Succeeded")) // of the new generation
	testenv.Eventually(t, "the events of both passes, which follow the status", func() error {
		if n := b.events.count(); n < 4 {
			return fmt.Errorf("%d events", n)
		}
		return nil
	})
	b.events.mu.Lock()
	defer b.events.mu.Unlock()
	var alerts []string
	cluster := &clusterRecorder{}
	for _, e := range b.events.events {
		alerts = append(alerts, e.Reason+": "+e.Message)
		reconcile.EmitToCluster(cluster).Emit("group", &sourcev1.GitRepository{}, e)
	}
	if want := []string{"Progressing: 1 created", "Succeeded: applied one", "Progressing: 1 configured",
		"Succeeded: applied two"}; !slices.Equal(alerts, want) {
		t.Errorf("alerts have %q, want %q", alerts, want)
	}
	if want := []string{"Succeeded: applied one\n1 created",
		"Succeeded: applied two\n1 configured"}; !slices.Equal(cluster.notes, want) {
		t.Errorf("the cluster has %q, want %q", cluster.notes, want)
	}
}
