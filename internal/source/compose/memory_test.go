package compose

import (
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
)

// TestAliasesInMergedFiles has files of less than 1 MiB whose aliases stand for gigabytes of text.
func TestAliasesInMergedFiles(t *testing.T) {
	text := "a: &a " + strings.Repeat("x", 400_000) + "\nb: [" + strings.Repeat("*a,", 100_000) + "]\n"
	tree := artifact.FromMap(map[string]string{"a.yaml": text})
	if _, err := mergeFiles(t.Context(), tree, "a.yaml", tree, "a.yaml"); err == nil ||
		!strings.Contains(err.Error(), "of text") {
		t.Errorf("the error is %v", err)
	}
	if _, err := parseMetadata("a.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "of text") {
		t.Errorf("the error of the metadata is %v", err)
	}
}

// TestMergeTakesMemoryOfItsNamespace merges files that need more than a namespace may use, and less than there is.
func TestMergeTakesMemoryOfItsNamespace(t *testing.T) {
	values := "a: [" + strings.Repeat("1,", 2500) + "1]\n"
	trees := map[string]*artifact.Tree{"a": artifact.FromMap(map[string]string{"v.yaml": values})}
	copies := []Copy{{From: "@a/v.yaml", To: "@artifact/v.yaml"},
		{From: "@a/v.yaml", To: "@artifact/v.yaml", Strategy: Merge}}
	for owner, fits := range map[string]bool{"": true, "hostile": false} {
		budget := guard.NewBudget(4 << 20)
		_, err := Build(guard.WithOwner(guard.WithBudget(t.Context(), budget), owner), copies, trees)
		if guard.IsMemory(err) == fits || fits && err != nil {
			t.Errorf("owner '%s': %v", owner, err)
		}
		if used := budget.Used(); used > 0 {
			t.Errorf("%d bytes are not released", used)
		}
	}
}
