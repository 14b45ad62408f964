package risk

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
)

// FileName is the path of the file in which a repository adds and switches off rules.
const FileName = ".sluice/risk.yaml"

const maxFile = 128 << 10 // bytes

// settings is the content of the file.
type settings struct {
	// PrunePercent is the share of an inventory from which on its deletion is a finding; 0 is the default.
	PrunePercent int `json:"prunePercent,omitempty"`
	// Disable lists built-in rules that do not apply.
	Disable []string `json:"disable,omitempty"`
	// Rules are added. A rule with the name of a built-in one replaces it; fields that are empty keep its values.
	Rules []Rule `json:"rules,omitempty"`
}

// Parse returns the built-in rules as the content of a file changes them. The error lists all mistakes.
func Parse(content []byte) (*Rules, error) {
	if len(content) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", FileName, maxFile)
	}
	var s settings
	if err := yamlsize.Check(content); err != nil {
		return nil, fmt.Errorf("%s: %w", FileName, err)
	}
	if err := yaml.UnmarshalStrict(content, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", FileName, err)
	}
	if len(s.Rules) > maxRules || len(s.Disable) > maxRules {
		return nil, fmt.Errorf("%s has more than %d rules", FileName, maxRules)
	}
	if s.PrunePercent < 0 || s.PrunePercent > 100 {
		return nil, fmt.Errorf("%s: prunePercent is %d, not between 1 and 100", FileName, s.PrunePercent)
	}
	rules, err := s.merge()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", FileName, err)
	}
	out, err := newRules(rules, cmp.Or(s.PrunePercent, DefaultPrunePercent))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", FileName, err)
	}
	return out, nil
}

// merge returns the built-in rules with the changes of the file.
func (s settings) merge() ([]Rule, error) {
	var problems []error
	rules := slices.Clone(builtin)
	index := func(name string) int { return slices.IndexFunc(rules, func(r Rule) bool { return r.Name == name }) }
	for _, name := range s.Disable {
		n := index(name)
		if n < 0 {
			problems = append(problems, fmt.Errorf("disable: no built-in rule has the name %.70q. "+
				"List them with 'sluice preview --list-rules'", name))
			continue
		}
		rules = slices.Delete(rules, n, n+1)
	}
	added := map[string]bool{}
	for _, r := range s.Rules {
		if added[r.Name] {
			problems = append(problems, fmt.Errorf("rule %.70q is declared twice", r.Name))
			continue
		}
		added[r.Name] = true
		if n := index(r.Name); n >= 0 {
			rules[n] = r.over(rules[n])
		} else {
			rules = append(rules, r)
		}
	}
	return rules, errors.Join(problems...)
}

// over returns the rule with the values of a built-in one for fields that are empty.
func (r Rule) over(base Rule) Rule {
	if r.Message != "" || r.Expression != "" {
		base.MessageExpression = ""
	}
	return Rule{Name: r.Name, Level: cmp.Or(r.Level, base.Level), Expression: cmp.Or(r.Expression, base.Expression),
		Message:           cmp.Or(r.Message, base.Message),
		MessageExpression: cmp.Or(r.MessageExpression, base.MessageExpression)}
}
