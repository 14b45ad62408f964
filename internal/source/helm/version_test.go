package helm

import (
	"fmt"
	"strings"
	"testing"
)

// TestShortVersionsOfCharts checks that a range selects versions of three numbers only. A version such as 1.2 is found
// by its text in an index; in a registry it is a range, as Helm lists only complete versions there.
func TestShortVersionsOfCharts(t *testing.T) {
	versions := []string{"1.0.0", "1.2", "20240101", "1.1.0", "v1.9.0"}
	r := newChartRegistry(t)
	index := "apiVersion: v1\nentries:\n  app:\n"
	for _, v := range versions {
		r.publish(t, "app", v)
		index += fmt.Sprintf("  - {version: '%s', urls: [a.tgz]}\n", v)
	}
	parsed, err := ParseIndex(t.Context(), strings.NewReader(index), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for constraint, want := range map[string]struct{ index, registry string }{
		"":         {"v1.9.0", "1.1.0"},
		"*":        {"v1.9.0", "1.1.0"},
		">=1.0.0":  {"v1.9.0", "1.1.0"},
		"1.1.x":    {"1.1.0", "1.1.0"},
		"1.2":      {"1.2", ""},
		"1.2.0":    {"", ""},
		"20240101": {"20240101", ""},
		"v1.9.0":   {"v1.9.0", "v1.9.0"},
		"1.9.0":    {"v1.9.0", ""},
	} {
		if got, err := parsed.Find("app", constraint); got.Version != want.index || (err == nil) != (want.index != "") {
			t.Errorf("index, %q: got %q and %v, want %q", constraint, got.Version, err, want.index)
		}
		got, err := r.client(login).Find(t.Context(), "app", constraint)
		if got.Version != want.registry || (err == nil) != (want.registry != "") {
			t.Errorf("registry, %q: got %q and %v, want %q", constraint, got.Version, err, want.registry)
		}
	}
}
