package ruling

import (
	"runtime"
	"strings"
	"testing"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
)

func pass(name, expression string) gatingv1.Rule {
	return gatingv1.Rule{Name: name, Expression: expression, Outcome: gatingv1.OutcomePass}
}

var image = risk.Change{
	Owner: risk.Owner{Kind: "Kustomization", Namespace: "apps", Name: "web"}, Author: "Ada <ada@x>", Files: []string{},
	Secrets: []string{"s3cret-value"}, Objects: []risk.Object{{Action: risk.Configured, Group: "apps",
		Kind: "Deployment", Name: "web", Images: []risk.Image{{Container: "web", Old: "web:1", New: "web:2"}}}},
}

func TestOf(t *testing.T) {
	for name, tc := range map[string]struct {
		rules []gatingv1.Rule
		want  string // name of the rule, or a part of the error
	}{
		"no rule applies": {rules: []gatingv1.Rule{pass("a", "false")}},
		"first one": {
			rules: []gatingv1.Rule{pass("a", "false"), pass("b", "true"), pass("c", "true")},
			want:  "b"},
		"images": {
			rules: []gatingv1.Rule{pass("a", "change.images.exists(i, i.new == 'web:2')")},
			want:  "a"},
		"the object that asks": {
			rules: []gatingv1.Rule{pass("a", "object.kind == 'Kustomization' && object.name == 'web'")},
			want:  "a"},
		"risk": {
			rules: []gatingv1.Rule{pass("a", "change.risk == 'low'")},
			want:  "a"},
		"author": {
			rules: []gatingv1.Rule{pass("a", "change.author.endsWith('<ada@x>')")},
			want:  "a"},
		"no files": {
			rules: []gatingv1.Rule{pass("a", "change.files.size() == 0")},
			want:  "a"},
		"unknown message": {
			rules: []gatingv1.Rule{pass("a", "change.message == ''")},
			want:  "no such key: message"},
		"error before a hit": {
			rules: []gatingv1.Rule{pass("a", "change.x"), pass("b", "true")},
			want:  "rule 'a' cannot be evaluated"},
		"wrong type": {
			rules: []gatingv1.Rule{pass("a", "change.author")},
			want:  "not true or false"},
		"too expensive": {
			rules: []gatingv1.Rule{pass("a", "[lists.range(5000)].all(l, l.map(x, l).flatten().size() > 0)")},
			want:  "cannot be evaluated"},
	} {
		t.Run(name, func(t *testing.T) {
			rules, err := Compile(tc.rules)
			if err != nil {
				t.Fatal(err)
			}
			c := image
			rule, err := rules.Of(t.Context(), &c, Asker{Kind: "Kustomization", Namespace: "apps", Name: "web"})
			got := ""
			switch {
			case err != nil:
				got = err.Error()
			case rule != nil:
				got = rule.Name
			}
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestSecretsAreMaskedInErrors(t *testing.T) {
	rules, err := Compile([]gatingv1.Rule{pass("a", "int('s3cret-value') == 1")})
	if err != nil {
		t.Fatal(err)
	}
	c := image
	if _, err := rules.Of(t.Context(), &c, Asker{}); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got %v", err)
	}
}

func TestCompile(t *testing.T) {
	for name, tc := range map[string]struct {
		rule gatingv1.Rule
		want string
	}{
		"syntax":           {rule: pass("a", "change."), want: "rule 'a' is invalid"},
		"no condition":     {rule: pass("a", "1 + 1"), want: "gives a int"},
		"unknown variable": {rule: pass("a", "objects == 1"), want: "undeclared reference"},
		"missing approvals": {
			rule: gatingv1.Rule{Name: "a", Expression: "true", Outcome: gatingv1.OutcomeApprovals},
			want: "approvals must be set if the outcome is approvals"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Compile([]gatingv1.Rule{tc.rule})
			if err == nil || !strings.Contains(err.Error(), tc.want) ||
				!strings.Contains(err.Error(), "Correct it in spec.rules; no change passes until then") {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// TestMemoryOfRules compiles the largest expressions that take much memory for their text.
func TestMemoryOfRules(t *testing.T) {
	const length, copies = 16 << 10, 5
	for name, text := range map[string]string{
		"list":       "[" + strings.Repeat("1,", length/2-20) + "1].size() > 0",
		"map":        "{" + strings.Repeat("1:1,", length/4-20) + "0:1}.size() > 0",
		"conditions": strings.Repeat("true||", length/6-20) + "true",
		"fields":     strings.Repeat("change.a||", length/10-20) + "true",
		"calls":      strings.Repeat("'a'.contains('b')||", length/19-20) + "true",
		"macros":     strings.Repeat("[1].all(x,true)||", 50) + "true",
		"nested":     strings.Repeat("[[[[[[[[[[1]]]]]]]]]]==change.a||", length/32-20) + "true",
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var kept []*Rules
		for range copies {
			rules, err := Compile([]gatingv1.Rule{pass("a", text)})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			kept = append(kept, rules)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		most := int64(copies * (ruleBytes + len(text)*textFactor))
		if got := int64(after.HeapAlloc) - int64(before.HeapAlloc); got > most {
			t.Errorf("%s: %d bytes are kept, more than %d", name, got, most)
		}
		runtime.KeepAlive(kept)
	}
}
