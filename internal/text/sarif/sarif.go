// Package sarif writes findings in the Static Analysis Results Interchange Format 2.1.0, which hosts of git read:
// https://docs.oasis-open.org/sarif/sarif/v2.1.0.
package sarif

import (
	"encoding/json"
	"io"
)

// Levels of findings.
const (
	Note    = "note"
	Warning = "warning"
	Error   = "error"
)

// Rule is a rule that findings name.
type Rule struct{ ID, Text, Level string }

// Finding is a place where something breaks a rule.
type Finding struct {
	Rule, Level, Message string
	Object               string // what the finding is about, such as Deployment/apps/web; may be empty
	File                 string // may be empty
	Line                 int    // 0 if it is not known
}

type object = map[string]any

// Write writes the findings of a version of Sluice.
func Write(out io.Writer, version string, rules []Rule, findings []Finding) error {
	described, results := []object{}, []object{}
	for _, r := range rules {
		described = append(described, object{"id": r.ID, "shortDescription": object{"text": r.Text},
			"defaultConfiguration": object{"level": r.Level}})
	}
	for _, f := range findings {
		results = append(results, f.result())
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(object{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []any{object{"results": results, "tool": object{"driver": object{
			"name": "sluice", "version": version, "rules": described,
			"informationUri": "https://github.com/sluice-gitops/sluice"}}}},
	})
}

func (f Finding) result() object {
	location := object{}
	if f.Object != "" {
		location["logicalLocations"] = []object{{"fullyQualifiedName": f.Object, "kind": "resource"}}
	}
	if f.File != "" {
		physical := object{"artifactLocation": object{"uri": f.File}}
		if f.Line > 0 {
			physical["region"] = object{"startLine": f.Line}
		}
		location["physicalLocation"] = physical
	}
	return object{"ruleId": f.Rule, "level": f.Level, "message": object{"text": f.Message},
		"locations": []object{location}, "partialFingerprints": object{"object": f.Rule + "/" + f.Object}}
}
