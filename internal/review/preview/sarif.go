package preview

import (
	"io"

	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/text/sarif"
)

// sarifLevels are the levels of findings, by risk.
var sarifLevels = map[risk.Level]string{risk.Low: sarif.Note, risk.Medium: sarif.Warning, risk.High: sarif.Error}

const failedRule = "preview-failed"

// SARIF writes the findings in the Static Analysis Results Interchange Format. Findings of the rule for ordinary
// changes are left out; previews that failed are findings of the rule preview-failed.
func (r *Result) SARIF(out io.Writer, version string, rules []risk.Rule) error {
	described := []sarif.Rule{}
	for _, rule := range append(rules, risk.Rule{Name: failedRule, Level: risk.High,
		Message: "the change could not be computed"}) {
		described = append(described, sarif.Rule{ID: rule.Name, Text: rule.Message, Level: sarifLevels[rule.Level]})
	}
	var findings []sarif.Finding
	add := func(f risk.Finding, name string) {
		if f.Level <= risk.Low && f.Rule == risk.Ordinary {
			return
		}
		findings = append(findings, sarif.Finding{Rule: f.Rule, Level: sarifLevels[f.Level],
			Message: name + ": " + f.Message, Object: name})
	}
	for _, o := range r.Owners {
		if o.Error != "" {
			add(risk.Finding{Rule: failedRule, Level: risk.High, Message: o.Error}, o.Owner.String())
		}
		for _, f := range o.Findings {
			add(f, o.Owner.String())
		}
		for _, object := range o.Objects {
			for _, f := range object.Findings {
				add(f, object.String())
			}
		}
	}
	return sarif.Write(out, version, described, findings)
}
