package inputprovider

import (
	"strings"
	"testing"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestOrderOfTags(t *testing.T) {
	t.Parallel()
	tags := []string{"1.9.0", "v1.10.0", "latest", "2.0.0-rc.1", "2.0.0", "1.9.0", "main-1", "1.2"}
	for name, c := range map[string]struct {
		filter controlplanev1.InputFilter
		want   string
	}{
		"by bytes": {controlplanev1.InputFilter{}, "v1.10.0 main-1 latest 2.0.0-rc.1 2.0.0 1.9.0 1.2"},
		"range":    {controlplanev1.InputFilter{Semver: ">=1.9.0"}, "2.0.0 v1.10.0 1.9.0"},
		"prerelease": {controlplanev1.InputFilter{Semver: ">=1.9.0-0"},
			"2.0.0 2.0.0-rc.1 v1.10.0 1.9.0"},
		"included": {controlplanev1.InputFilter{IncludeTag: `^v?1\.`}, "v1.10.0 1.9.0 1.2"},
		"excluded": {controlplanev1.InputFilter{ExcludeTag: `rc|main|latest`, Semver: "*"},
			"2.0.0 v1.10.0 1.9.0"},
		"the last field counts": {controlplanev1.InputFilter{IncludeBranch: "x", IncludeTag: "y",
			IncludeEnvironment: "main"}, "main-1"},
	} {
		f, err := newFilter(&c.filter)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := strings.Join(f.order(tags), " "); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestInvalidFilters(t *testing.T) {
	t.Parallel()
	for _, f := range []controlplanev1.InputFilter{
		{IncludeBranch: "("}, {ExcludeEnvironment: "(a{1000}){1000}"}, {Semver: "one"},
		{Semver: strings.Repeat(">1.0.0 ", 1000)},
	} {
		_, err := newFilter(&f)
		if f := fault.As(err); f == nil || f.Reason != meta.InvalidSpecReason || !f.Terminal || len(f.Error()) > 500 {
			t.Errorf("got %v", err)
		}
	}
}

func TestSkips(t *testing.T) {
	t.Parallel()
	p := &provider{obj: &controlplanev1.ResourceSetInputProvider{}}
	if p.skips([]string{"hold"}) {
		t.Error("skipped without spec.skip")
	}
	p.obj.Spec.Skip = &controlplanev1.InputSkip{Labels: []string{"hold", "!tested"}}
	for labels, want := range map[string]bool{"tested": false, "tested hold": true, "": true, "other": true} {
		if got := p.skips(strings.Fields(labels)); got != want {
			t.Errorf("%q: skipped is %t", labels, got)
		}
	}
}

func TestSlugs(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"main": "main", "Feat/UI_Footer": "feat-ui-footer", "-a-": "a", "ü": "",
		strings.Repeat("a", 62) + "/b": strings.Repeat("a", 62),
	} {
		if got := slug(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

// TestChecksums has values of zlib.adler32 of Python.
func TestChecksums(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"main": "68878758", "": "1", "1.0.0": "47055086"} {
		if got := checksum(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}
