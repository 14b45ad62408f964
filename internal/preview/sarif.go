package preview

import (
	"encoding/json"
	"io"

	"github.com/sluice-gitops/sluice/internal/risk"
)

// SARIF levels of risk levels: https://docs.oasis-open.org/sarif/sarif/v2.1.0.
var sarifLevels = map[risk.Level]string{risk.Low: "note", risk.Medium: "warning", risk.High: "error"}

type (
	sarifText struct {
		Text string `json:"text"`
	}
	sarifRule struct {
		ID      string    `json:"id"`
		Short   sarifText `json:"shortDescription"`
		Default struct {
			Level string `json:"level"`
		} `json:"defaultConfiguration"`
	}
	sarifLocation struct {
		Logical []map[string]string `json:"logicalLocations"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		Level        string            `json:"level"`
		Message      sarifText         `json:"message"`
		Locations    []sarifLocation   `json:"locations"`
		Fingerprints map[string]string `json:"partialFingerprints"`
	}
)

// SARIF writes the findings in the Static Analysis Results Interchange Format 2.1.0. Findings of the rule for ordinary
// changes are left out; previews that failed are findings of the rule preview-failed.
func (r *Result) SARIF(out io.Writer, version string, rules []risk.Rule) error {
	var described []sarifRule
	for _, rule := range append(rules, risk.Rule{Name: failedRule, Level: risk.High,
		Message: "the change could not be computed"}) {
		d := sarifRule{ID: rule.Name, Short: sarifText{Text: rule.Message}}
		d.Default.Level = sarifLevels[rule.Level]
		described = append(described, d)
	}
	results := []sarifResult{}
	add := func(f risk.Finding, name string) {
		if f.Level <= risk.Low && f.Rule == risk.Ordinary {
			return
		}
		results = append(results, sarifResult{RuleID: f.Rule, Level: sarifLevels[f.Level],
			Message: sarifText{Text: name + ": " + f.Message},
			Locations: []sarifLocation{{Logical: []map[string]string{
				{"fullyQualifiedName": name, "kind": "resource"},
			}}},
			Fingerprints: map[string]string{"object": f.Rule + "/" + name}})
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
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(map[string]any{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []any{map[string]any{"results": results, "tool": map[string]any{"driver": map[string]any{
			"name": "sluice", "version": version, "rules": described,
			"informationUri": "https://github.com/sluice-gitops/sluice"}}}},
	})
}

const failedRule = "preview-failed"
