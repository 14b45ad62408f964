package substitute

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"k8s.io/apimachinery/pkg/util/json"
)

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	b, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var o map[string]any
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestObjectGivesValuesTheTypesOfYAML(t *testing.T) {
	variables := map[string]string{
		"quote": `"`, "id": "123", "on": "true", "pi": "3.5", "list": `["a", 1]`, "map": "{a: 1}", "empty": "",
		"text": "a: b", "half": "x # y", "tagged": "!!str 123",
		"lines": "one\ntwo", "star": "*x", "image": "nginx", "tag": "1.10", "date": "2026-01-01", "bad": "[a",
		"string": `"7"`, "single": "'7'", "null": "null",
	}
	got := object(t, `
plain: untouched
number: 7
id: ${id}
quoted: "${id}"
text: ${quote}${id}${quote}
enabled: ${on}
onText: ${quote}${on}${quote}
pi: ${pi}
string: ${string}
single: ${single}
list: ${list}
map: ${map}
empty: ${empty}
"null": ${null}
colon: ${text}
comment: ${half}
tagged: ${tagged}
money: $$5
lines: ${lines}
block: |
  first ${lines}
  ${id}
star: ${star}
image: ${image}:${tag}
version: v${tag}
date: ${date}
bad: ${bad}
default: ${none:="false"}
spaced: ' ${id}'
colonDefault: '${none:=a: b}'
script: echo $HOME $${HOME}
nested: {"${image}-${id}": [{deep: "${id}"}, "${on}"]}
`)
	if problems, _ := Object(got, variables, true, NewBudget(1<<20), anything); len(problems) > 0 {
		t.Fatal(problems)
	}
	want := map[string]any{
		"plain": "untouched", "number": int64(7), "id": int64(123), "quoted": int64(123), "text": "123",
		"enabled": true, "onText": "true", "pi": 3.5,
		"string": "7", "single": "7", "list": []any{"a", int64(1)}, "map": map[string]any{"a": int64(1)}, "empty": nil,
		"null":  nil,
		"colon": "a: b", "comment": "x", "tagged": "123", "money": "$5", "lines": "one\ntwo",
		"block": "first one\ntwo\n123\n", "star": "*x",
		"image": "nginx:1.10", "version": "v1.10",
		"date": "2026-01-01", "bad": "[a", "default": "false", "spaced": " 123", "colonDefault": "a: b",
		"script": "echo $HOME ${HOME}",
		"nested": map[string]any{"nginx-123": []any{map[string]any{"deep": int64(123)}, true}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestObjectNamesEveryField(t *testing.T) {
	o := object(t, `
metadata: {name: "${name}", labels: {app.io/region: "${region}", "${key}": x}}
spec: {containers: [{image: "${image}"}, {image: "${1}"}], "${a}": 1, a: 2}
`)
	var got []string
	problems, _ := Object(o, map[string]string{"image": "i", "a": "a"}, true, NewBudget(1<<20), anything)
	for _, p := range problems {
		got = append(got, p.String())
	}
	want := []string{
		`metadata.labels["${key}"]: variable key is not set`,
		`metadata.labels["app.io/region"]: variable region is not set`,
		`metadata.name: variable name is not set`,
		`spec["${a}"]: the key is a duplicate after its variables are replaced`,
		`spec.containers[1].image: "${1}" is not a substitution expression`,
	}
	if diff := cmp.Diff(strings.Join(want, "\n"), strings.Join(got, "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestAliasBombInAVariableIsText(t *testing.T) {
	bomb := "[&a [x,x,x,x,x,x,x,x,x],&b [*a,*a,*a,*a,*a,*a,*a,*a,*a],&c [*b,*b,*b,*b,*b,*b,*b,*b,*b],&d " +
		"[*c,*c,*c,*c,*c,*c,*c,*c,*c],&e [*d,*d,*d,*d,*d,*d,*d,*d,*d],[*e,*e,*e,*e,*e,*e,*e,*e,*e]]"
	o := map[string]any{"v": "${bomb}"}
	problems, _ := Object(o, map[string]string{"bomb": bomb}, true, NewBudget(1<<20), anything)
	if len(problems) > 0 || o["v"] != bomb {
		t.Errorf("%v, %T", problems, o["v"])
	}
}

func TestAllObjectsShareTheirRoom(t *testing.T) {
	left, big := NewBudget(100), map[string]string{"big": strings.Repeat("x", 60)}
	for i, want := range []bool{true, true, false} {
		o := map[string]any{"a": "${big}", "b": "plain"}
		problems, _ := Object(o, big, true, left, anything)
		if ok := len(problems) == 0; ok != want ||
			!want && !strings.Contains(problems[0].String(), "a: the values of variables would take more room") {
			t.Errorf("object %d: %v", i, problems)
		}
	}
}

// The limit of one text alone would allow each of the fields a second.
func TestAllObjectsShareTheirTime(t *testing.T) {
	left, big := NewBudget(1<<20), map[string]string{"big": strings.Repeat("a", 1<<20)}
	for name, text := range map[string]string{"a pattern": strings.Repeat("${big##a*b}", 100),
		"lengths": strings.Repeat("${#big}", 300),
		"parts":   strings.Repeat("${big:0:1}", 300), "a set": "${big##*[" + strings.Repeat("b", 1000) + "]}"} {
		left.Steps = maxSteps
		problems := 0
		for range 1000 {
			found, _ := Object(map[string]any{"a": text}, big, true, left, anything)
			problems += len(found)
		}
		if problems < 999 {
			t.Errorf("%s: %d problems", name, problems)
		}
	}
}

func TestManyMissingVariablesTakeLittleTime(t *testing.T) {
	var text strings.Builder
	const n = 200_000
	for i := range n {
		fmt.Fprintf(&text, "${v%d}", i)
	}
	_, err := Expand(text.String(), nil, true)
	if m := (*Missing)(nil); !errors.As(err, &m) || len(m.Names) != n {
		t.Errorf("got %.100v", err)
	}
}

// anything takes memory for any text.
func anything([]byte) error { return nil }

// TestTextsTakeMemoryBeforeTheyAreParsed has two fields that become lists, and no memory for the second one.
func TestTextsTakeMemoryBeforeTheyAreParsed(t *testing.T) {
	none := errors.New("no memory")
	taken := 0
	o := map[string]any{"a": "${list}", "b": "${list}"}
	problems, _ := Object(o, map[string]string{"list": "[1, 2]"}, true, NewBudget(1<<20), func(text []byte) error {
		if taken += len(text); taken > len("v: [1, 2]\n") {
			return none
		}
		return nil
	})
	if len(problems) != 1 || problems[0].Field != "b" || !errors.Is(problems[0].Err, none) || o["b"] != "${list}" {
		t.Errorf("problems are %v, b is %v", problems, o["b"])
	}
	if list, ok := o["a"].([]any); !ok || len(list) != 2 {
		t.Errorf("a is %v", o["a"])
	}
}

func FuzzObject(f *testing.F) {
	f.Add("a: ${v}\n", "1")
	f.Add("'${v}': [{b: '${v:=x}'}]\n", "{a: [b]}")
	f.Add("a: 'x ${v//a/b}'\n", "\"7\"")
	f.Fuzz(func(t *testing.T, manifest, value string) {
		b, err := yaml.YAMLToJSON([]byte(manifest))
		var o map[string]any
		if err != nil || json.Unmarshal(b, &o) != nil {
			return
		}
		problems, _ := Object(o, map[string]string{"v": value}, true, NewBudget(1<<20), anything)
		for _, p := range problems {
			if value != "" && len(value) > 8 && strings.Contains(p.Err.Error(), value) &&
				!strings.Contains(manifest, value) {
				t.Errorf("the error contains the value of a variable: %s", p)
			}
		}
		if _, err := json.Marshal(o); err != nil {
			t.Error(err)
		}
	})
}
