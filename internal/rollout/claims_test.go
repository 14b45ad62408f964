package rollout

import (
	"strings"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// claimer is an owner whose passes report claims.
type claimer struct {
	claims *Claims
	obj    *kustomizev1.Kustomization
	target *Target
}

func newClaimer(claims *Claims, name string) *claimer {
	c := &claimer{claims: claims, obj: &kustomizev1.Kustomization{}, target: &Target{}}
	c.obj.Namespace, c.obj.Name = "team", name
	return c
}

func (c *claimer) ref() reconcile.Ref {
	gk := schema.GroupKind{Group: kustomizev1.GroupVersion.Group, Kind: kustomizev1.KustomizationKind}
	return reconcile.RefTo(gk, c.obj.Namespace, c.obj.Name)
}

// pass completes a pass with ConfigMaps in the inventory. It returns the condition's message and the events.
func (c *claimer) pass(yields map[string]bool, names ...string) (message string, events []event) {
	inventory := &meta.ResourceInventory{}
	for _, n := range names {
		inventory.Entries = append(inventory.Entries, meta.ResourceRef{ID: configMapID(n), Version: "v1"})
	}
	r := &Report{Owner: c.ref()}
	c.claims.Report(c.obj, r, c.target, inventory, yields)
	if found := apimeta.FindStatusCondition(c.obj.Status.Conditions, meta.ContendedCondition); found != nil {
		message = found.Message
	}
	return message, r.events
}

func configMapID(name string) string { return "team_" + name + "__ConfigMap" }

func TestClaimsOfTwoOwnersAreReportedOnBoth(t *testing.T) {
	claims := &Claims{Edges: reconcile.NewEdges()}
	a, b := newClaimer(claims, "a"), newClaimer(claims, "b")
	a.pass(nil, "x", "y")
	if got, _ := b.pass(nil, "y"); got != "" {
		t.Errorf("b reports before a has completed a pass: %s", got)
	}
	const want = "ConfigMap/team/y is declared by both Kustomization 'team/a' and Kustomization 'team/b'; each apply " +
		"overwrites the other\nRemove it from one of them"
	for _, owner := range []*claimer{a, b} {
		names := []string{"x", "y"}
		if owner == b {
			names = []string{"y"}
		}
		if got, events := owner.pass(nil, names...); got != want || len(events) != 1 || !events[0].warning {
			t.Errorf("%s reports %q with events %v, want %q", owner.obj.Name, got, events, want)
		}
		if got, events := owner.pass(nil, names...); got != want || len(events) != 0 {
			t.Errorf("a steady %s reports %q with events %v", owner.obj.Name, got, events)
		}
	}
	if got, events := b.pass(nil); got != "" || len(events) != 1 || events[0].warning {
		t.Errorf("b still reports %q with events %v", got, events)
	}
	if got, _ := a.pass(nil, "x", "y"); got != "" {
		t.Errorf("a still reports %q", got)
	}
}

func TestMovedObjectHasOneOwner(t *testing.T) {
	claims := &Claims{Edges: reconcile.NewEdges()}
	giver, taker := newClaimer(claims, "giver"), newClaimer(claims, "taker")
	giver.pass(nil, "x")
	taker.pass(nil, "x")
	if got, _ := taker.pass(nil, "x"); got != "" {
		t.Errorf("the taker reports %q before the giver has completed a pass", got)
	}
	giver.pass(nil)
	for _, owner := range []*claimer{giver, taker} {
		if got, _ := owner.pass(nil); got != "" {
			t.Errorf("%s reports %q", owner.obj.Name, got)
		}
	}
}

func TestOwnersThatDoNotCompete(t *testing.T) {
	for name, change := range map[string]func(a, b *claimer) map[string]bool{
		"another cluster": func(_, b *claimer) map[string]bool {
			b.target = &Target{cluster: "other"}
			return nil
		},
		"fields left to others": func(_, _ *claimer) map[string]bool { return map[string]bool{configMapID("x"): true} },
		"a deleted owner": func(a, _ *claimer) map[string]bool {
			a.pass(nil, "x")
			a.claims.Forget(a.ref())
			a.claims = &Claims{Edges: reconcile.NewEdges()} // its passes do not count any more
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			claims := &Claims{Edges: reconcile.NewEdges()}
			a, b := newClaimer(claims, "a"), newClaimer(claims, "b")
			yields := change(a, b)
			for range 2 {
				a.pass(nil, "x")
				if got, _ := b.pass(yields, "x"); got != "" {
					t.Errorf("b reports %q", got)
				}
			}
		})
	}
}

func TestClaimsAfterARestart(t *testing.T) {
	first := &Claims{Edges: reconcile.NewEdges()}
	a, b := newClaimer(first, "a"), newClaimer(first, "b")
	for range 2 {
		a.pass(nil, "x")
		b.pass(nil, "x")
	}
	a.claims = &Claims{Edges: reconcile.NewEdges()}
	b.claims = a.claims
	for range 2 {
		for _, owner := range []*claimer{a, b} {
			if got, events := owner.pass(nil, "x"); !strings.Contains(got, "declared by both") || len(events) != 0 {
				t.Errorf("%s reports %q with events %v after a restart", owner.obj.Name, got, events)
			}
		}
	}
}
