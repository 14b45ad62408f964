package substitute

import (
	"strings"
	"testing"
)

func TestValuesThatYAMLCutsAreNoted(t *testing.T) {
	for value, want := range map[string]string{
		"a #b": "cut", "#all": "cut", "!tag v": "cut", "&anc v": "cut", "a\t#b": "cut", "1 #b": "cut",
		"true # x": "cut",
		"|":        "cut", ">": "cut", "plain": "", "a#b": "", "a & b": "", "a!": "", "!!str 123": "", `"1"`: "",
		"'#x'": "",
		"a: b": "", "http://x/#y": "", "12": "a number", "1e3": "a number", "true": "a boolean", "null": "null",
		"":    "null",
		"[1]": "a list", "{a: 1}": "a map", "0777": "a number", "1.10.1": "", " spaced ": "",
	} {
		for _, expression := range []string{"${v}", "${v:=x}", "${none:=${v}}"} {
			if value == "" && expression != "${v}" {
				continue // empty values have defaults
			}
			o := map[string]any{"a": expression}
			problems, notes := Object(o, map[string]string{"v": value}, true, NewBudget(1<<20), anything)
			got := ""
			if len(notes) > 0 {
				got = notes[0].Type
				if notes[0].IsCut {
					got = "cut"
				}
				if text := notes[0].String(); !strings.HasPrefix(text, "a: ") || !strings.Contains(text, "variable") {
					t.Errorf("%s with %q: %s", expression, value, text)
				}
			}
			if len(problems) > 0 || got != want {
				t.Errorf("%s with %q is noted as %q, want %q; %v", expression, value, got, want, problems)
			}
		}
	}
}

// TestNotedValuesAreKept replaces the expression that a note proposes.
func TestNotedValuesAreKept(t *testing.T) {
	for _, value := range []string{"a #b", "#all", "!tag v", "&anc v", "12", "true", "null", "1e3", "[1]"} {
		variables := map[string]string{"v": value, "quote": `"`}
		_, notes := Object(map[string]any{"a": "${v}"}, variables, true, NewBudget(1<<20), anything)
		if len(notes) != 1 {
			t.Errorf("%q: %d notes", value, len(notes))
			continue
		}
		o := map[string]any{"a": strings.Trim(notes[0].Keep(), "'")}
		_, notes = Object(o, variables, true, NewBudget(1<<20), anything)
		if o["a"] != value || len(notes) > 0 {
			t.Errorf("%q became %q, %v", value, o["a"], notes)
		}
	}
}

func TestNotesNameTheVariablesOfTheField(t *testing.T) {
	_, notes := Object(map[string]any{"a": "${one}${two:=x} $${three}${#one}"}, map[string]string{"one": "1 #",
		"two": "2"},
		true, NewBudget(1<<20), anything)
	if len(notes) != 1 || strings.Join(notes[0].Variables, " ") != "one two" {
		t.Errorf("%+v", notes)
	}
}
