package version_test

import (
	"cmp"
	"testing"

	"github.com/sluice-gitops/sluice/internal/limits/version"
)

// TestParse has the tags that Flux takes as versions, and those that it does not: fewer than two dots, or no version.
func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1.2.3": "1.2.3", "v1.2.3": "1.2.3", "v2025.07.03": "2025.7.3", "01.2.3": "1.2.3", "0.0.0": "0.0.0",
		"1.2.3-rc.1": "1.2.3-rc.1", "v1.2.3+k3s1": "1.2.3+k3s1", "1.2.0-x.Y.0+meta-data": "1.2.0-x.Y.0+meta-data",
		"1-alpine3.19.1": "1.0.0-alpine3.19.1", // Flux counts dots, and reads the rest loosely
		"":               "", "v": "", "1": "", "v1": "", "20240215": "", "1.2": "", "v1.2-beta5": "", "1.2.beta": "",
		"1.2.3.4": "", "V1.2.3": "", "vv1.2.3": "", " 1.2.3": "", "1.2.3 ": "", "\n1.2.3": "", "1..3": "", ".1.2": "",
		"1.2.": "", "-1.2.3": "", "latest": "", "1.2.3-": "", "1.2.3-01": "", "1.2.3+": "", "1.2.3_4": "", "..": "",
		"99999999999999999999.0.0": "", "release-1.2.3": "", "1.2-alpine": "", "v..": "",
	} {
		got, err := version.Parse(text)
		if err != nil && want != "" || err == nil && got.String() != want {
			t.Errorf("%q: got %v and %v, want %q", text, got, err, want)
		}
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	ordered := []string{"1.0.0-rc.2", "1.0.0-rc.10", "1.0.0", "1.0.0+up57.0.3", "1.0.1+build.5", "1.0.1+build.40",
		"1.1.0"}
	for i, a := range ordered {
		for j, b := range ordered {
			x, errX := version.Parse(a)
			y, errY := version.Parse(b)
			if errX != nil || errY != nil {
				t.Fatal(errX, errY)
			}
			if got := version.Compare(x, y); got != cmp.Compare(i, j) {
				t.Errorf("%s and %s: got %d", a, b, got)
			}
		}
	}
}

func TestChecked(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0 tags checked", 1: "1 tag checked", 2: "2 tags checked"} {
		if got := version.Checked(n); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
