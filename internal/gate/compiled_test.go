package gate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
)

// TestRulesAreCompiledOnce checks that the controller of gates and the index share compiled rules, for the same
// generation of the same gate only, and that an event of a gate does not wait for them.
func TestRulesAreCompiledOnce(t *testing.T) {
	x := newTestIndex(t)
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "release", UID: "1", Generation: 1},
		Spec: gatingv1.GateSpec{Rules: []gatingv1.Rule{{Name: "broken", Expression: "change.",
			Outcome: gatingv1.OutcomeDeny}}}}
	x.Put(g)
	if n := x.rules.Len(); n != 0 {
		t.Errorf("the rules of %d gates are compiled while events of other gates wait", n)
	}
	first := x.CheckRules(g)
	again := x.CheckRules(g.DeepCopy())
	if first == nil || again != first { //nolint:errorlint // the same value
		t.Errorf("the rules are compiled again: %v", first)
	}
	for name, change := range map[string]func(g *gatingv1.Gate){
		"generation": func(g *gatingv1.Gate) { g.Generation++ },
		"UID":        func(g *gatingv1.Gate) { g.UID = "2" },
		"name":       func(g *gatingv1.Gate) { g.Name = "other" },
		"namespace":  func(g *gatingv1.Gate) { g.Namespace = "other" },
	} {
		other := g.DeepCopy()
		change(other)
		other.Spec.Rules[0].Expression = "true"
		if err := x.CheckRules(other); err != nil {
			t.Errorf("another %s has the rules of the index: %v", name, err)
		}
	}
}
