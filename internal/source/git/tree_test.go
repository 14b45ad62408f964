package git

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/source/git/packstore"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestDirectoriesAreNotParsedWithoutMemory has a directory of 50 entries and a malformed one.
func TestDirectoriesAreNotParsedWithoutMemory(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"a.yaml": "1"})
	v := open(t)
	updated(t, v, Remote{URL: g.URL + "/app"}, Reference{Branch: "main"})
	r := v.mirror.current.Load()
	var data []byte
	for i := range 50 {
		data = append(data, "40000 "+string(rune('0'+i))+"\x00"+strings.Repeat("h", 20)...)
	}
	data = append(data, "malformed"...)
	if err := r.objects.Put(t.Context(), []packstore.Object{{Kind: plumbing.TreeObject, Data: data}}); err != nil {
		t.Fatal(err)
	}
	for entries, isMemory := range map[int64]bool{49: true, 50: false} {
		ctx := guard.WithBudget(t.Context(), guard.NewBudget(entries*entryBytes))
		lease, err := guard.BudgetOf(ctx).Acquire(ctx, "a test", 0)
		if err != nil {
			t.Fatal(err)
		}
		b := &builder{ctx: ctx, view: v, entries: 1000, lease: lease}
		_, err = b.list(&checkout{origin: origin{v.mirror, r}},
			place{hash: plumbing.ComputeHash(plumbing.TreeObject, data)})
		if guard.IsMemory(err) != isMemory || errors.Is(err, errTree) == isMemory {
			t.Errorf("with memory for %d entries: %v", entries, err)
		}
	}
}
