package apply

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// another returns another owner on the same cluster.
func (f *fixture) another(name string) *fixture {
	other := *f
	other.owner.Name, other.inventory = name, nil
	return &other
}

// pruneStale deletes objects that the owner no longer declares, and returns the changes.
func (f *fixture) pruneStale(before Inventory) []string {
	f.t.Helper()
	changes, err := f.Prune(context.Background(), f.owner, before.Without(f.inventory))
	if err != nil {
		f.t.Fatal(err)
	}
	return describe(changes)
}

// handoverStep is one step of a handover between the owners a and b.
type handoverStep func(a, b *fixture, before Inventory) []string

func handoverText(f *fixture, names ...string) string {
	var docs []string
	for _, n := range names {
		docs = append(docs, f.cm(n))
	}
	return strings.Join(docs, "---\n")
}

func bApplies(_, b *fixture, _ Inventory) []string { return b.apply(handoverText(b, "moves")) }

func aApplies(a, _ *fixture, _ Inventory) []string { return a.apply(handoverText(a, "stays")) }

func aPrunes(a, _ *fixture, before Inventory) []string { return a.pruneStale(before) }

var handovers = map[string]struct {
	steps  []handoverStep
	want   [][]string
	kept   bool   // the object is not deleted
	during string // b applies before the first request with this method
}{
	"new owner applies first": {
		steps: []handoverStep{bApplies, aApplies, aPrunes, bApplies},
		want: [][]string{{"ConfigMap/moves configured"}, {"ConfigMap/stays unchanged"}, nil,
			{"ConfigMap/moves unchanged"}}, kept: true,
	},
	"new owner applies before the old one prunes": {
		steps: []handoverStep{aApplies, bApplies, aPrunes, bApplies},
		want: [][]string{{"ConfigMap/stays unchanged"}, {"ConfigMap/moves configured"}, nil,
			{"ConfigMap/moves unchanged"}}, kept: true,
	},
	"new owner applies while the old one prunes": {
		steps: []handoverStep{aApplies, aPrunes, bApplies},
		want:  [][]string{{"ConfigMap/stays unchanged"}, nil, {"ConfigMap/moves unchanged"}}, kept: true,
		during: http.MethodDelete,
	},
	"old owner prunes first": { // the object is created again
		steps: []handoverStep{aApplies, aPrunes, bApplies},
		want:  [][]string{{"ConfigMap/stays unchanged"}, {"ConfigMap/moves deleted"}, {"ConfigMap/moves created"}},
	},
}

func TestHandoverBetweenOwners(t *testing.T) {
	t.Parallel()
	// Owner a declares two objects. Then one of them moves to owner b.
	for name, c := range handovers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var between func()
			var once sync.Once
			a := newFixture(t, func(cfg *rest.Config) {
				cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
					return roundTripper(func(r *http.Request) (*http.Response, error) {
						if c.during != "" && r.Method == c.during {
							once.Do(between)
						}
						return next.RoundTrip(r)
					})
				})
			})
			b := a.another("b")
			between = func() { b.apply(handoverText(b, "moves")) }
			a.apply(handoverText(a, "stays", "moves"))
			before, uid := a.inventory, a.get(configMaps, "moves").GetUID()
			a.waitSynced()
			for n, do := range c.steps {
				assertLines(t, "step", do(a, b, before), c.want[n])
				if a.has(configMaps, a.ns, "moves") {
					a.waitObserved(configMaps, "moves")
				}
			}
			live := b.get(configMaps, "moves")
			if (live.GetUID() == uid) != c.kept || !b.owner.owns(live.GetLabels()) {
				t.Errorf("same object: %v, want %v; labels %v", live.GetUID() == uid, c.kept,
					live.GetLabels())
			}
			if b.Drifted(b.owner) {
				t.Error("the new owner sees drift")
			}
		})
	}
}

func TestObjectDeclaredByTwoOwnersCausesWarning(t *testing.T) {
	t.Parallel()
	a := newFixture(t)
	b := a.another("b")
	owners := []*fixture{a, b}
	for round := range 4 {
		f, other := owners[round%2], owners[(round+1)%2]
		text := f.cm("x")
		if round == 2 {
			text = strings.ReplaceAll(text, `"1"`, `"2"`) // the live object is not read then
		}
		result, err := f.try(f.request(text))
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			if len(result.Warnings) != 0 || result.Changes[0].PreviousOwner != (Owner{}) {
				t.Errorf("previous owner %v, warnings %q", result.Changes[0].PreviousOwner, result.Warnings)
			}
			f.waitSynced()
			continue
		}
		f.waitObserved(configMaps, "x")
		if result.Changes[0].PreviousOwner != other.owner {
			t.Errorf("round %d: previous owner %v, want %v", round, result.Changes[0].PreviousOwner, other.owner)
		}
		warnings := strings.Join(result.Warnings, " ")
		for _, s := range []string{"ConfigMap/" + f.ns + "/x", f.owner.String(), other.owner.String(),
			"remove it from one"} {
			if !strings.Contains(warnings, s) {
				t.Errorf("round %d: %q does not contain %q", round, warnings, s)
			}
		}
	}
	restarted := b.restart()
	restarted.owner = a.owner
	changes, err := restarted.Diff(t.Context(), restarted.request(a.cm("x")))
	if err != nil || len(changes) != 1 || changes[0].PreviousOwner != b.owner {
		t.Errorf("diff after a restart: %v, %v", changes, err)
	}
}
