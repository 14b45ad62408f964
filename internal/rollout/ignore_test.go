package rollout

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// TestTargetsOfIgnoreRulesAreBounded has targets that would take long to compare with many objects.
func TestTargetsOfIgnoreRulesAreBounded(t *testing.T) {
	rules := func(n int, target meta.Selector) []meta.IgnoreRule {
		return slices.Repeat([]meta.IgnoreRule{{Paths: []string{"/spec"}, Target: &target}}, n)
	}
	const hint = "Use fewer rules, or names instead of regular expressions"
	for name, c := range map[string]struct {
		rules []meta.IgnoreRule
		drift []meta.IgnoreRule
		want  string
	}{
		"plain names":      {rules: rules(1000, meta.Selector{Kind: "Deployment", Name: "a-long-name"})},
		"some expressions": {rules: rules(100, meta.Selector{Kind: "Deployment", Name: "web-.*"})},
		"a large program": {rules: rules(1, meta.Selector{Name: strings.Repeat("(?:a?){1000}", 100)}),
			want: "the target of spec.ignore is invalid"},
		"many programs": {rules: rules(2, meta.Selector{Name: "(?:a?){1000}"}), drift: rules(1, meta.Selector{
			Kind: "(?:a?){1000}"}), want: "the targets of spec.driftDetection.ignore stand for more than 10000"},
		"long selectors": {rules: rules(1, meta.Selector{LabelSelector: strings.Repeat("a!=b,", 200_000) + "a!=b"}),
			want: "the targets of spec.ignore stand for more than 10000 instructions"},
	} {
		_, err := IgnoreRules(c.rules, &meta.DriftDetection{Ignore: c.drift})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.300v", name, err)
		}
		if f := fault.As(err); strings.Contains(c.want, "stand for") && (f == nil || f.Hint != hint) {
			t.Errorf("%s: the hint is missing from %.300v", name, err)
		}
	}
}
