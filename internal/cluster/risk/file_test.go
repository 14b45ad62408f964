package risk

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	r, err := Parse([]byte(`prunePercent: 10
disable: [recreation]
rules:
- name: replicas-zero
  level: high
- name: latest
  level: low
  message: the tag 'latest' is not a version
  expression: object.images.exists(i, i.new.endsWith(':latest'))
`))
	if err != nil {
		t.Fatal(err)
	}
	levels := map[string]Level{}
	for _, rule := range r.List() {
		levels[rule.Name] = rule.Level
	}
	if levels["replicas-zero"] != High || levels["latest"] != Low || levels["recreation"] != None ||
		levels[Ordinary] != Low || r.prunePercent != 10 || len(levels) != len(builtin)+1 {
		t.Errorf("rules %v, prune %d%%", levels, r.prunePercent)
	}
	change := &Change{Objects: []Object{{Action: Created, Kind: "Pod", Images: []Image{{New: "a:latest"}}}}}
	if a := r.Classify(t.Context(), change); len(a.Findings) != 1 || a.Findings[0].Rule != "latest" {
		t.Errorf("findings %v", a.Findings)
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	rule := "rules: [{name: a, level: low, message: m, expression: 'true'"
	for content, want := range map[string]string{
		"rule: []":                                   "unknown field",
		"prunePercent: 101":                          "prunePercent is 101",
		"disable: [nothing]":                         `no built-in rule has the name "nothing"`,
		"disable: [ordinary]":                        `no built-in rule has the name "ordinary"`,
		rule + "}, {name: a}]":                       "declared twice",
		"rules: [{name: A b}]":                       "lower case",
		"rules: [{name: ordinary}]":                  "cannot be changed",
		"rules: [{name: a, level: severe}]":          "use low, medium or high",
		"rules: [{name: a}]":                         "level is missing",
		"rules: [{name: a, level: low}]":             "expression is missing",
		strings.Replace(rule, "m,", "'',", 1) + "}]": "message is missing",
		strings.Replace(rule, "true", "1", 1) + "}]": "not true or false",
		rule + ", messageExpression: '1'}]":          "not a text",
		rule + ", x: 1}]":                            "unknown field",
		strings.Repeat("# ", maxFile):                "larger than",
	} {
		if _, err := Parse([]byte(content)); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), FileName) {
			t.Errorf("%.60s: %v, want %q", content, err, want)
		}
	}
}

// TestRuleThatFailsIsARisk checks that a rule which cannot be evaluated hides nothing.
func TestRuleThatFailsIsARisk(t *testing.T) {
	t.Parallel()
	deep := "object.fields.all(a, object.fields.all(b, object.fields.all(c, a + b + c != '')))"
	for _, expression := range []string{"object.none == 1", "change.none == 1", deep} {
		r, err := newRules([]Rule{{Name: "a", Level: Low, Message: "m", Expression: expression}}, 50)
		if err != nil {
			t.Fatal(err)
		}
		a := r.Classify(t.Context(), &Change{Objects: []Object{
			{Action: Configured, Fields: slices.Repeat([]string{"x"}, 500)},
		}})
		if a.Level != High || !strings.Contains(a.Findings[0].Message, "could not be evaluated") {
			t.Errorf("%s: %v", expression, a)
		}
	}
}

// TestBounds checks that a huge change gives a bounded number of findings, and level High.
func TestBounds(t *testing.T) {
	t.Parallel()
	a := Default().Classify(t.Context(), &Change{Objects: make([]Object, maxFindings+10)})
	if len(a.Findings) != maxFindings+1 || a.Level != High {
		t.Errorf("%d findings, level %v", len(a.Findings), a.Level)
	}
	many := map[string]any{"rules": []any{map[string]any{"verbs": make([]any, 0)}}}
	verbs := make([]any, 40)
	for n := range verbs {
		verbs[n] = strings.Repeat("v", n+1)
	}
	many["rules"].([]any)[0] = map[string]any{"verbs": verbs, "apiGroups": verbs, "resources": verbs}
	if got := addedGrants(rbacGroup, "Role", nil, many); len(got) != 1 || !strings.Contains(got[0], "not compared") {
		t.Errorf("grants %v", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("prunePercent: 10\ndisable: [recreation]\nrules: [{name: a, level: low, message: m, expression: 'true'}]")
	f.Add("rules: [{name: b, level: high, message: m, expression: 'object.fields.size() > 1', messageExpression: " +
		"'object.name'}]")
	f.Add("rules: [{name: replicas-zero, level: low}]")
	change := &Change{Inventory: 3, Objects: []Object{{Action: Created, Kind: "Role", Fields: []string{"a"}}}}
	f.Fuzz(func(t *testing.T, content string) {
		r, err := Parse([]byte(content))
		if err != nil {
			return
		}
		a := r.Classify(t.Context(), change)
		if a.Level == None {
			t.Errorf("no finding: %v", a)
		}
		if len(r.List()) > maxRules+1 {
			t.Errorf("%d rules", len(r.List()))
		}
	})
}
