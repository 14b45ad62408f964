package build

import (
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestABuildIsRefusedBeforeItTakesTheMemoryOfOthers(t *testing.T) {
	manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n"
	files := map[string]string{"kustomization.yaml": "resources: [x.yaml]\nnamePrefix: a-\n",
		"x.yaml": manifest + "  x: [" + strings.Repeat("{},", 100_000) + "]\n"}
	budget := guard.NewBudget(16 << 20)
	ctx := guard.WithBudget(t.Context(), budget)
	result, err := Build(ctx, Request{Tree: artifact.FromMap(files), Path: "."})
	if fault.Reason(err, "") != guard.ReasonTooLarge {
		t.Fatalf("the error is %v", err)
	}
	if result.Again {
		t.Error("the build is repeated although the input is the same")
	}
	files["x.yaml"] = manifest + "  x: y\n"
	if _, err := Build(ctx, Request{Tree: artifact.FromMap(files), Path: "."}); err != nil {
		t.Errorf("a small build after it: %v", err)
	}
	ctx = guard.WithBudget(t.Context(), guard.NewBudget(1))
	result, err = Build(ctx, Request{Tree: artifact.FromMap(files), Path: "."})
	if !guard.IsMemory(err) || !result.Again {
		t.Errorf("a build without memory: %v, is repeated: %v", err, result.Again)
	}
}

// TestMemoryOfVariablesIsTaken has a field that variables make a list of many short values, and small ones.
func TestMemoryOfVariablesIsTaken(t *testing.T) {
	files := map[string]string{"x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n" +
		"large: ${open}${v}${v}${v}${close}\nsmall: ${open}1${close}\n"}
	build := func(repeats int) (*Result, error) {
		ctx := guard.WithBudget(t.Context(), guard.NewBudget(16<<20))
		return Build(ctx, Request{Tree: artifact.FromMap(files), Path: ".", Substitution: &Substitution{
			Variables: map[string]string{"open": "[", "close": "1]", "v": strings.Repeat("{a},", repeats)}}})
	}
	if _, err := build(20_000); !guard.IsMemory(err) {
		t.Errorf("the error is %v", err)
	}
	if result, err := build(10); err != nil || len(result.Objects[0].Object["large"].([]any)) != 31 {
		t.Errorf("%+v, %v", result, err)
	}
}
