package manager

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-gitops/sluice/internal/fleet/hub"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/notify/delivery"
	"github.com/sluice-gitops/sluice/internal/process/metrics"
	"github.com/sluice-gitops/sluice/internal/source/helm"
)

var (
	metricName = regexp.MustCompile(`\b(?:gotk|sluice|flux)_[a-z_]+[a-z]\b`)
	fqName     = regexp.MustCompile(`fqName: "([^"]+)"`)
)

// served returns the names of all metrics of Sluice, those of a hub included.
func served(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, c := range append(slices.Concat(collectors(), hub.Metrics(nil)), metrics.ForTokens(&auth.Identities{}),
		metrics.ForIndexes(&helm.Indexes{}), &delivery.Dispatcher{}) {
		descriptions := make(chan *prometheus.Desc, 100)
		c.Describe(descriptions)
		close(descriptions)
		for d := range descriptions {
			names[fqName.FindStringSubmatch(d.String())[1]] = true
		}
	}
	if len(names) < 10 {
		t.Fatalf("found %d metrics", len(names))
	}
	return names
}

// namedIn returns the metrics that a file names. Series of a histogram have its name.
func namedIn(t *testing.T, file string) map[string]bool {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", file))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, name := range metricName.FindAllString(string(content), -1) {
		for _, series := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, series)
		}
		names[name] = true
	}
	return names
}

func TestDocumentationListsEveryMetric(t *testing.T) {
	want, got := served(t), namedIn(t, "docs/monitoring.md")
	if !maps.Equal(want, got) {
		t.Errorf("docs/monitoring.md names\n%s\nserved are\n%s", slices.Sorted(maps.Keys(got)),
			slices.Sorted(maps.Keys(want)))
	}
}

// TestMonitoringUsesMetricsThatExist compares alert rules and dashboards with what is served. hack/testrules evaluates
// them.
func TestMonitoringUsesMetricsThatExist(t *testing.T) {
	files, err := filepath.Glob("../../config/monitoring/dashboards/*.json")
	if err != nil || len(files) < 4 {
		t.Fatalf("found %d dashboards: %v", len(files), err)
	}
	exist, used := served(t), 0
	for _, file := range append(files, "../../config/monitoring/rules.yaml") {
		for name := range namedIn(t, strings.TrimPrefix(file, "../../")) {
			if used++; !exist[name] {
				t.Errorf("%s names %s, which is not served", file, name)
			}
		}
	}
	if used == 0 {
		t.Error("no metric is used")
	}
}
