package gate

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime/pkg/reconcile"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/gate/promotion"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

type panickingProber struct{}

func (panickingProber) Probe(context.Context, *gatingv1.Gate, gatingv1.Check) (string, error) {
	panic("oh")
}

func (panickingProber) Clusters(context.Context, *gatingv1.Gate, *gatingv1.ClustersCheck, string) (*fleet.Rollout,
	error) {
	panic("as a test")
}

func (panickingProber) Members(context.Context, *gatingv1.Gate, *gatingv1.RevisionCheck) ([]promotion.Member, error) {
	panic("oh")
}

func TestACheckThatPanicsFails(t *testing.T) {
	edges := reconcile.NewEdges()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer queue.ShutDown()
	edges.SetQueue(GroupKind, queue)
	checks := &Checks{Prober: panickingProber{}, Clock: clock.RealClock{}, Edges: edges}
	g := &gatingv1.Gate{Spec: gatingv1.GateSpec{Checks: []gatingv1.Check{{Name: "slow", HTTP: &gatingv1.HTTPCheck{}}}}}
	g.Namespace, g.Name, g.UID = "apps", "freeze", "1"
	if _, _, err := checks.Run(g, time.Now()); err != nil {
		t.Fatal(err)
	}
	if request, _ := queue.Get(); request.Name != "freeze" {
		t.Errorf("the queue has %v", request)
	}
	results, _, err := checks.Run(g, time.Now())
	if err != nil || len(results) != 1 {
		t.Fatalf("%v, %v", results, err)
	}
	r := results[0]
	if r.Passed || r.Holds || !strings.Contains(r.Message, guard.Hint) || strings.Contains(r.Message, "oh") {
		t.Errorf("the result is %+v", r)
	}
}
