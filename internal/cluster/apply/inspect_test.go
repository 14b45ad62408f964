package apply

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// inspected returns the changes of a preview that inspects, with what it says about the objects before and after.
func (f *fixture) inspected(text string) ([]string, error) {
	req := f.request(text)
	req.Inspect = true
	changes, err := f.Diff(f.t.Context(), req)
	var out []string
	for n, line := range describe(changes) {
		c := changes[n]
		out = append(out, fmt.Sprintf("%s before=%t after=%t recreated=%t", line, c.Before != nil, c.After != nil,
			c.Recreated))
	}
	return out, err
}

// TestInspect checks that a preview returns the objects of changes, and that objects which the account may not see are
// hidden: with the right to read, they are compared with their declaration; without, they are hidden, also if they
// would be deleted or do not exist.
func TestInspect(t *testing.T) {
	t.Parallel()
	f := asTenant(t)
	f.grant("get, list, watch, create, patch, delete")
	stays, goes := f.cm("stays"), f.cm("goes")
	f.applySoon(stays + "---\n" + goes)
	f.waitSynced()
	changed := strings.Replace(stays, `a: "1"`, `a: "2"`, 1) + "---\n" + f.cm("comes")
	seen := []string{
		"ConfigMap/comes created before=false after=true recreated=false",
		"ConfigMap/stays configured before=true after=true recreated=false",
		"ConfigMap/goes deleted before=true after=false recreated=false",
	}
	hidden := []string{
		"ConfigMap/comes hidden before=false after=false recreated=false",
		"ConfigMap/stays hidden before=false after=false recreated=false",
		"ConfigMap/goes hidden before=false after=false recreated=false",
	}
	for _, c := range []struct {
		verbs string
		want  []string
	}{
		{verbs: "get, list, watch, create, patch, delete", want: seen},
		{verbs: "get, list", want: seen},
		{verbs: "watch", want: hidden},
	} {
		f.grant(c.verbs)
		testenv.Eventually(t, "preview with the rights "+c.verbs, func() error {
			if got, err := f.inspected(changed); err != nil || !slices.Equal(got, c.want) {
				return fmt.Errorf("got %q (%w)", got, err)
			}
			return nil
		})
	}
}

// TestInspectRecreated checks that a preview tells an object that is created again from a new one.
func TestInspectRecreated(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	frozen := strings.Replace(f.cm("frozen"), "\ndata", "\nimmutable: true\ndata", 1)
	f.apply(frozen)
	f.waitSynced()
	req := f.request(strings.Replace(frozen, `a: "1"`, `a: "2"`, 1))
	req.Inspect, req.Force = true, true
	changes, err := f.Diff(t.Context(), req)
	if err != nil || len(changes) != 1 || !changes[0].Recreated || changes[0].Before == nil || changes[0].After == nil {
		t.Errorf("changes %+v (%v)", changes, err)
	}
	r, err := f.try(req)
	if err != nil || len(r.Changes) != 1 || !r.Changes[0].Recreated || r.Changes[0].Action != Created {
		t.Errorf("applied %+v (%v)", r, err)
	}
}
