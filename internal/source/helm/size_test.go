package helm

import (
	"archive/tar"
	"fmt"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/loader/archive"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
)

// largeCharts are charts that need much more memory than their files have bytes.
var largeCharts = map[string]map[string]string{
	"aliases in the values": {"values.yaml": "a: &a " + strings.Repeat("x", 400_000) + "\nb: [" +
		strings.Repeat("*a,", 100_000) + "]\n"},
	"aliases in Chart.yaml": {"Chart.yaml": chartYAML + "annotations:\n  a: &a " + strings.Repeat("x", 400_000) +
		"\n  b: *a\n" + manyAliases(100_000)},
	"many values": {"values.yaml": "a: [" + strings.Repeat("0,", 400_000) + "]\n"},
	"many values of a subchart": {"charts/sub/Chart.yaml": chartYAML,
		"charts/sub/values.yaml": "a: [" + strings.Repeat("0,", 400_000) + "]\n"},
}

func manyAliases(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "  k%d: *a\n", i)
	}
	return b.String()
}

func TestChartsThatNeedMuchMemoryAreRefused(t *testing.T) {
	for name, files := range largeCharts {
		t.Run(name, func(t *testing.T) {
			budget := guard.NewBudget(64 << 20)
			ctx := guard.WithBudget(t.Context(), budget)
			all, tree := []*archive.BufferedFile{}, map[string]string{"Chart.yaml": chartYAML}
			for name, text := range files {
				tree[name] = text
			}
			for name, text := range tree {
				all = append(all, &archive.BufferedFile{Name: name, Data: []byte(text)})
			}
			if _, err := LoadFiles(ctx, all); !isSize(err) {
				t.Errorf("the error of the files is %.300v", err)
			}
			if _, err := BuildTree(ctx, artifact.FromMap(tree), ".", Options{Limits: DefaultLimits}); !isSize(err) {
				t.Errorf("the error of the tree is %.300v", err)
			}
			if used := budget.Used(); used != 0 {
				t.Errorf("%d bytes are still used", used)
			}
		})
	}
}

func isSize(err error) bool {
	return guard.IsMemory(err) || err != nil && strings.Contains(err.Error(), "aliases stand for more than 4 MiB")
}

// TestPackagedChartsAreBoundedTogether has many small packages in charts/ that unpack to much.
func TestPackagedChartsAreBoundedTogether(t *testing.T) {
	zeros := strings.Repeat("0", 4<<20)
	var all []*archive.BufferedFile
	add := func(name, text string) {
		all = append(all, &archive.BufferedFile{Name: name, Data: []byte(text)})
	}
	add("Chart.yaml", chartYAML)
	for i := range 40 {
		sub := archiveOf(t, tar.Header{Name: "sub/Chart.yaml", Uname: chartYAML},
			tar.Header{Name: "sub/zeros", Uname: zeros})
		add(fmt.Sprintf("charts/sub%d.tgz", i), string(sub))
	}
	if _, err := LoadFiles(t.Context(), all); err == nil || !strings.Contains(err.Error(), "exceeds") {
		t.Errorf("the error is %.300v", err)
	}
	values := "a: &a " + zeros[:400_000] + "\nb: [" + strings.Repeat("*a,", 100_000) + "]\n"
	tree := artifact.FromMap(map[string]string{"Chart.yaml": chartYAML, "values-x.yaml": values})
	_, err := BuildTree(t.Context(), tree, ".", Options{Limits: DefaultLimits, ValuesFiles: []string{"values-x.yaml"}})
	if !isSize(err) {
		t.Errorf("the error of the values file is %.300v", err)
	}
}
