package regex

import (
	"strings"
	"testing"
)

func TestCompile(t *testing.T) {
	for _, expression := range []string{"", ".*", `^(?P<ts>\d{8})-[0-9a-f]{7,40}$`, "(?i)failed|denied",
		strings.Repeat("a|", 1000) + "b", `^main-[a-f0-9]+-(?P<n>[0-9]+)$`, `.{0,255}`} {
		if _, err := Compile(expression); err != nil {
			t.Errorf("%.60s: %v", expression, err)
		}
	}
	for expression, want := range map[string]string{
		"(": "missing closing", strings.Repeat("a", maxLength+1): "longer than 4096 bytes",
		"(?s)" + strings.Repeat(".{0,1000}", 450): "instructions, at most 10000",
		`(\pL{30}){30}`:             "instructions, at most 10000",
		strings.Repeat(`\pL`, 1000): "instructions, at most 10000",
	} {
		if _, err := Compile(expression); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", expression, err, want)
		}
	}
}

func TestSize(t *testing.T) {
	_, small, err := CompileSized("abc")
	_, large, errLarge := CompileSized("(abc){100}")
	if err != nil || errLarge != nil || small < 3 || small > 10 || large < 300 || large > 1000 {
		t.Errorf("abc has %d instructions (%v), (abc){100} has %d (%v)", small, err, large, errLarge)
	}
}

func FuzzCompile(f *testing.F) {
	for _, seed := range []string{"a", "(?s).{0,1000}", "((a{9}){9}){9}", `[\pL\d]{3,}`, "(?i)é|ſ"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		compiled, n, err := CompileSized(expression)
		if err != nil {
			return
		}
		if n < 1 || n > maxProgram {
			t.Errorf("%q has %d instructions", expression, n)
		}
		compiled.MatchString("a text, 1.2.3")
	})
}
