package risk

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/sluice-gitops/sluice/internal/build/expression"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

const (
	// DefaultPrunePercent is the share of an inventory from which on its deletion is a finding.
	DefaultPrunePercent = 50

	maxRules    = 100
	maxFindings = 5000 // of one change
	maxMessage  = 300  // characters
	maxTime     = 10 * time.Second
)

// Rule says which changes have a level. Expression is CEL over `object`, once for each object, or over `change` alone.
type Rule struct {
	Name              string `json:"name"`
	Level             Level  `json:"level"`
	Expression        string `json:"expression"`
	Message           string `json:"message"`                     // what may happen, for people
	MessageExpression string `json:"messageExpression,omitempty"` // CEL, used instead of the message if it gives a text
}

// compiledRule is a rule that can be evaluated.
type compiledRule struct {
	Rule
	whole     bool // about the change as a whole
	condition *expression.Expression
	message   *expression.Expression // nil without a message expression
}

var ruleName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func compileRule(r Rule) (*compiledRule, error) {
	switch {
	case !ruleName.MatchString(r.Name):
		return nil, fmt.Errorf("rule %.70q: the name must be lower case letters, digits and '-', at most 63", r.Name)
	case r.Name == Ordinary:
		return nil, fmt.Errorf("rule '%s' is built in and cannot be changed", r.Name)
	case r.Level <= None || r.Level > High:
		return nil, fmt.Errorf("rule '%s': level is missing: use low, medium or high", r.Name)
	case r.Expression == "":
		return nil, fmt.Errorf("rule '%s': expression is missing", r.Name)
	case r.Message == "":
		return nil, fmt.Errorf("rule '%s': message is missing: say what may happen", r.Name)
	}
	c := &compiledRule{Rule: r, whole: true}
	names := slices.DeleteFunc(slices.Clone(variables), func(v string) bool { return v == "object" })
	var err error
	if c.condition, err = expression.Compile(r.Expression, names...); err != nil {
		c.whole, names = false, variables
		c.condition, err = expression.Compile(r.Expression, names...)
	}
	if err == nil && r.MessageExpression != "" {
		c.message, err = expression.CompileText(r.MessageExpression, names...)
	}
	if err != nil {
		return nil, fmt.Errorf("rule '%s': %w", r.Name, err)
	}
	return c, nil
}

// Rules are compiled rules. They are safe for concurrent use.
type Rules struct {
	rules        []*compiledRule
	prunePercent int
}

// Default returns the built-in rules.
func Default() *Rules {
	r, err := newRules(builtin, DefaultPrunePercent)
	if err != nil {
		panic("risk: built-in rules: " + err.Error()) // a test compiles them
	}
	return r
}

func newRules(rules []Rule, prunePercent int) (*Rules, error) {
	if len(rules) > maxRules {
		return nil, fmt.Errorf("more than %d rules", maxRules)
	}
	out := &Rules{prunePercent: prunePercent}
	var problems []error
	for _, r := range rules {
		c, err := compileRule(r)
		problems = append(problems, err)
		out.rules = append(out.rules, c)
	}
	return out, errors.Join(problems...)
}

// List returns the rules in the order of evaluation.
func (r *Rules) List() []Rule {
	var out []Rule
	for _, c := range r.rules {
		out = append(out, c.Rule)
	}
	return append(out, Rule{Name: Ordinary, Level: Low, Expression: "true", Message: "no other rule applies"})
}

// Classify returns what the rules say about a change. Each object has at least one finding. A rule that cannot be
// evaluated is a finding of level High, so that a mistake in a rule hides no risk.
func (r *Rules) Classify(ctx context.Context, c *Change) Assessment {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	run := classification{change: c, value: c.Value(None)}
	for _, rule := range r.rules {
		if rule.whole && len(c.Objects) > 0 {
			run.evaluate(ctx, rule, r.scope(run.value, nil), WholeChange)
		}
	}
	for n := range c.Objects {
		vars, before := r.scope(run.value, &c.Objects[n]), len(run.findings)
		for _, rule := range r.rules {
			if !rule.whole {
				run.evaluate(ctx, rule, vars, n)
			}
		}
		if len(run.findings) == before {
			run.add(Finding{Rule: Ordinary, Level: Low, Message: "no other rule applies", Object: n})
		}
		if run.isFull() {
			run.findings = append(run.findings, Finding{Rule: "limit", Level: High, Object: WholeChange,
				Message: fmt.Sprintf("the change has more than %d findings; other objects were not classified",
					maxFindings)})
			break
		}
	}
	out := Assessment{Findings: run.findings}
	for _, f := range out.Findings {
		out.Level = max(out.Level, f.Level)
	}
	return out
}

// classification is one run of the rules over a change.
type classification struct {
	change   *Change
	value    map[string]any
	findings []Finding
}

func (c *classification) isFull() bool { return len(c.findings) >= maxFindings }

func (c *classification) add(f Finding) {
	f.Message = excerpt.Line(c.change.Redact(f.Message), maxMessage)
	c.findings = append(c.findings, f)
}

func (c *classification) evaluate(ctx context.Context, rule *compiledRule, vars expression.Map, object int) {
	found, err := rule.condition.Holds(ctx, vars)
	switch {
	case err != nil:
		c.add(Finding{Rule: rule.Name, Level: High, Object: object,
			Message: "the rule could not be evaluated: " + err.Error()})
		return
	case !found:
		return
	}
	f := Finding{Rule: rule.Name, Level: rule.Level, Message: rule.Message, Object: object}
	if rule.message != nil {
		if text, err := rule.message.Text(ctx, vars); err == nil && text != "" {
			f.Message = text
		}
	}
	c.add(f)
}
