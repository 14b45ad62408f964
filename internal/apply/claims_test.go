package apply

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// another returns another owner that uses the same cluster.
func (f *fixture) another(name string) *fixture {
	other := *f
	other.owner.Name, other.inventory = name, nil
	return &other
}

// pruneStale deletes what the owner no longer declares, and returns what became of it.
func (f *fixture) pruneStale(before Inventory) []string {
	f.t.Helper()
	changes, err := f.Prune(context.Background(), f.owner, before.Without(f.inventory))
	if err != nil {
		f.t.Fatal(err)
	}
	return said(changes)
}

func TestObjectsMoveBetweenOwners(t *testing.T) {
	// It starts with a, which declares two objects; then one is declared by b.
	type step func(a, b *fixture, before Inventory) []string
	text := func(f *fixture, names ...string) string {
		var docs []string
		for _, n := range names {
			docs = append(docs, f.cm(n))
		}
		return strings.Join(docs, "---\n")
	}
	aApplies := func(a, _ *fixture, _ Inventory) []string { return a.apply(text(a, "stays")) }
	aPrunes := func(a, _ *fixture, before Inventory) []string { return a.pruneStale(before) }
	bApplies := func(_, b *fixture, _ Inventory) []string { return b.apply(text(b, "moves")) }
	for name, c := range map[string]struct {
		steps  []step
		want   [][]string
		stays  bool // the object that it was
		moment string
	}{
		"the new owner comes first": {
			[]step{bApplies, aApplies, aPrunes, bApplies},
			[][]string{{"ConfigMap/moves configured"}, {"ConfigMap/stays unchanged"}, nil,
				{"ConfigMap/moves unchanged"}}, true, "",
		},
		"the new owner comes before the old one prunes": {
			[]step{aApplies, bApplies, aPrunes, bApplies},
			[][]string{{"ConfigMap/stays unchanged"}, {"ConfigMap/moves configured"}, nil,
				{"ConfigMap/moves unchanged"}}, true, "",
		},
		"the new owner comes while the old one prunes": {
			[]step{aApplies, aPrunes, bApplies},
			[][]string{{"ConfigMap/stays unchanged"}, nil, {"ConfigMap/moves unchanged"}}, true, http.MethodDelete,
		},
		"the old owner prunes first": { // nobody can know that another is to come: it is created anew
			[]step{aApplies, aPrunes, bApplies},
			[][]string{{"ConfigMap/stays unchanged"}, {"ConfigMap/moves deleted"}, {"ConfigMap/moves created"}},
			false, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var between func()
			var once sync.Once
			a := newFixture(t, func(cfg *rest.Config) {
				cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
					return roundTripper(func(r *http.Request) (*http.Response, error) {
						if c.moment != "" && r.Method == c.moment {
							once.Do(between)
						}
						return next.RoundTrip(r)
					})
				})
			})
			b := a.another("b")
			between = func() { b.apply(text(b, "moves")) }
			a.apply(text(a, "stays", "moves"))
			before, uid := a.inventory, a.get(configMaps, "moves").GetUID()
			a.watched()
			for n, do := range c.steps {
				same(t, "step", do(a, b, before), c.want[n])
				if a.has(configMaps, a.ns, "moves") {
					a.seen(configMaps, "moves")
				}
			}
			live := b.get(configMaps, "moves")
			if (live.GetUID() == uid) != c.stays || !b.owner.owns(live.GetLabels()) {
				t.Errorf("the same object: %v, want %v; its labels are %v", live.GetUID() == uid, c.stays,
					live.GetLabels())
			}
			if b.Drifted(b.owner) {
				t.Error("the new owner thinks that it moved")
			}
		})
	}
}

func TestObjectsThatTwoOwnersClaim(t *testing.T) {
	t.Parallel()
	a := newFixture(t)
	b := a.another("b")
	owners := []*fixture{a, b}
	for round := range 4 {
		f, other := owners[round%2], owners[(round+1)%2]
		text := f.cm("x")
		if round == 2 {
			text = strings.ReplaceAll(text, `"1"`, `"2"`) // which spares a look at the live object
		}
		result, err := f.try(f.request(text))
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			if len(result.Warnings) != 0 || result.Changes[0].PreviousOwner != (Owner{}) {
				t.Errorf("claimed by %v: %q", result.Changes[0].PreviousOwner, result.Warnings)
			}
			f.watched()
			continue
		}
		f.seen(configMaps, "x")
		if result.Changes[0].PreviousOwner != other.owner {
			t.Errorf("round %d: taken from %v, want %v", round, result.Changes[0].PreviousOwner, other.owner)
		}
		told := strings.Join(result.Warnings, " ")
		for _, s := range []string{"ConfigMap/" + f.ns + "/x", f.owner.String(), other.owner.String(),
			"remove it from one"} {
			if !strings.Contains(told, s) {
				t.Errorf("round %d: %q does not say %q", round, told, s)
			}
		}
	}
	restarted := b.restart()
	restarted.owner = a.owner
	changes, err := restarted.Diff(t.Context(), restarted.request(a.cm("x")))
	if err != nil || len(changes) != 1 || changes[0].PreviousOwner != b.owner {
		t.Errorf("a diff after a start says %v, %v", changes, err)
	}
}
