package oci

import (
	"strings"
	"testing"
)

// TestHighest checks which tag a range selects: only versions of three numbers, and of charts also those whose tags
// have an underscore in place of a plus sign.
func TestHighest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tags string
		ref  Reference
		want string // empty: none
	}{
		"dates and moving tags": {tags: "6.1.0 6.1 6 20240101 12345678 latest", ref: Reference{SemVer: ">=6.0.0"},
			want: "6.1.0"},
		"only moving tags": {tags: "6.1 6 v6 20240101", ref: Reference{SemVer: ">=6.0.0"}},
		"chart": {tags: "104.1.0 104.1.1_up57.0.3 103.9.9_up9.9.9", want: "104.1.1_up57.0.3",
			ref: Reference{SemVer: "104.x", Layer: ChartLayer}},
		"chart's newest build": {tags: "1.0.1_build.5 1.0.1_build.40 1.0.1_build.7 1.0.2-rc.1_x",
			ref: Reference{SemVer: "1.x", Layer: ChartLayer}, want: "1.0.1_build.40"},
		"chart's prerelease with a build": {tags: "1.0.1_build.5 1.0.2-rc.1_x",
			ref: Reference{SemVer: ">=1.0.0-0", Layer: ChartLayer}, want: "1.0.2-rc.1_x"},
		"filter of a chart matches the tag": {tags: "1.0.1_a 1.0.2_b", want: "1.0.1_a",
			ref: Reference{SemVer: "1.x", SemverFilter: "_a$", Layer: ChartLayer}},
		"another layer": {tags: "104.1.0 104.1.1_up57.0.3", ref: Reference{SemVer: "104.x", Layer: "text/plain"},
			want: "104.1.0"},
		"no layer": {tags: "104.1.0 104.1.1_up57.0.3", ref: Reference{SemVer: "104.x"}, want: "104.1.0"},
	} {
		got, err := c.ref.highest(strings.Fields(c.tags))
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: got %q and %v, want %q", name, got, err, c.want)
		}
	}
}
