package gate

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// oneGate is a client that only reads one Gate.
type oneGate struct {
	client.Client
	gate *gatingv1.Gate
}

func (c oneGate) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	c.gate.DeepCopyInto(into.(*gatingv1.Gate))
	return nil
}

func TestHintsOfGates(t *testing.T) {
	named := func(name, checks string) *gatingv1.Gate {
		g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: name}}
		g.Spec.Checks = []gatingv1.Check{{Name: "c",
			Object: &gatingv1.ObjectCheck{APIVersion: gatingv1.GroupVersion.String(),
				Kind: gatingv1.GateKind, Name: checks}}}
		return g
	}
	c := &Controller{Client: oneGate{gate: named("b", "a")}}
	_, window := InputOf(&gatingv1.Gate{Spec: gatingv1.GateSpec{Window: &meta.Duration{Duration: -1}}})
	for want, err := range map[string]error{
		"Remove one check of a gate from the cycle":                    c.checkCycle(t.Context(), named("a", "b")),
		"Set it to a positive duration such as 1h, at most 87600h0m0s": window,
	} {
		if f := fault.As(err); f == nil || f.Hint != want {
			t.Errorf("got %v, want the hint %q", err, want)
		}
	}
}
