package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/model/kind"
)

const (
	evaluationTimeout  = time.Minute // for the controller to evaluate a gate
	evaluationInterval = 200 * time.Millisecond
)

// awaitGate reads a gate until a controller has evaluated a change of it, and reports whether it has. It does not wait
// for a gate that no controller has evaluated before.
func awaitGate(ctx context.Context, c client.Client, g *gatingv1.Gate, done func() bool) (bool, error) {
	if g.Status.ObservedGeneration == 0 {
		return false, nil
	}
	key := client.ObjectKeyFromObject(g)
	err := wait.PollUntilContextTimeout(ctx, evaluationInterval, evaluationTimeout, true,
		func(ctx context.Context) (bool, error) {
			if err := c.Get(ctx, key, g); err != nil {
				return false, err
			}
			return done(), nil
		})
	if wait.Interrupted(err) {
		return false, nil
	}
	if err != nil {
		return false, cluster.Explain(fmt.Sprintf("cannot read Gate '%s'", key), err)
	}
	return true, nil
}

// notEvaluated reports that a change is recorded, and how to find out what it leads to.
func (e *env) notEvaluated(what string, g *gatingv1.Gate) {
	e.Done("%s. No controller has evaluated it yet: run sluice gate status %s to see the result", what, g.Name)
}

// isOpen reports whether the status says that a gate is open.
func isOpen(g *gatingv1.Gate) bool {
	return apimeta.IsStatusConditionTrue(g.Status.Conditions, gatingv1.OpenedCondition)
}

// why returns why a gate is in its state, on one line and without the state itself.
func why(g *gatingv1.Gate) string {
	text := "see sluice gate status " + g.Name
	if r := cluster.ReadyCondition(g); r != nil && r.Status == "False" {
		text = r.Message
	} else if w := g.Status.Why; w != nil {
		text = w.Message
	}
	return term.OneLine(strings.TrimPrefix(text, "Gate closed: "))
}

// describeGate returns the state of a gate, until when, and for which revisions.
func describeGate(g *gatingv1.Gate, now time.Time) string {
	state := "closed"
	if isOpen(g) {
		state = "open"
		if r := g.Status.ApprovedRevisions; len(r) > 0 {
			state += " for " + strings.Join(r, ", ")
		}
	}
	if end := g.Status.ResetToDefaultAt; end != nil && end.After(now) {
		state += " until " + kind.Time(*end)
	}
	return fmt.Sprintf("Gate '%s' is %s", client.ObjectKeyFromObject(g), state)
}

// report prints what came of a request, or returns an error if the gate is not in the requested state.
func (r *gateRequest) report(ctx context.Context, c client.Client, g *gatingv1.Gate, request string) error {
	evaluated, err := awaitGate(ctx, c, g, func() bool { return g.Status.LastHandledReconcileAt == request })
	key := client.ObjectKeyFromObject(g)
	switch {
	case err != nil:
		return err
	case !evaluated:
		r.notEvaluated(fmt.Sprintf("requested Gate '%s' to %s", key, r.verb), g)
	case isOpen(g) != (r.verb == "open"):
		state := map[bool]string{true: "open", false: "closed"}[isOpen(g)]
		return fmt.Errorf("the request to %s Gate '%s' is recorded, but it is still %s: %s", r.verb, key, state, why(g))
	default:
		r.Done("%s", describeGate(g, time.Now()))
	}
	return nil
}
