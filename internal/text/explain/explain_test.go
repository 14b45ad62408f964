package explain

import (
	"regexp"
	"strings"
	"testing"
)

func TestEntriesAreComplete(t *testing.T) {
	codes, reasons := map[string]bool{}, map[string]bool{}
	for _, e := range All() {
		if codes[e.Code] || reasons[e.Reason] {
			t.Errorf("%s %s is on the page twice", e.Code, e.Reason)
		}
		codes[e.Code], reasons[e.Reason] = true, true
		if e.NeedsNoAction {
			continue
		}
		parts := strings.Split(e.Text, "\n\n")
		if len(parts) != 3 || !strings.HasPrefix(parts[0], "**Cause:** ") ||
			!strings.HasPrefix(parts[1], "**Check:** ") || !strings.HasPrefix(parts[2], "**Cure:** ") {
			t.Errorf("%s %s does not consist of a cause, a check and a cure", e.Code, e.Reason)
		}
		for _, p := range e.Plain() {
			if regexp.MustCompile("[*`]|\\]\\(").MatchString(p) {
				t.Errorf("%s prints markup: %s", e.Code, p)
			}
		}
	}
	const least = 100
	if len(codes) < least {
		t.Errorf("the page has %d entries", len(codes))
	}
}

func TestFind(t *testing.T) {
	for _, word := range []string{"SLU-1101", "slu-1101", "GitOperationFailed", "gitoperationfailed"} {
		if e, ok := Find(word); !ok || e.Code != "SLU-1101" || e.Reason != "GitOperationFailed" {
			t.Errorf("%s is %+v", word, e)
		}
	}
	if e, ok := Find("SLU-9999"); ok {
		t.Errorf("found %+v", e)
	}
}

func TestWithCode(t *testing.T) {
	for name, c := range map[string]struct {
		reason, message string
		most            int
		want            string
	}{
		"known":     {reason: "BuildFailed", message: "no file", most: 100, want: "no file (SLU-1202)"},
		"unknown":   {reason: "Other", message: "no file", most: 100, want: "no file"},
		"success":   {reason: "Succeeded", message: "done", most: 100, want: "done"},
		"empty":     {reason: "BuildFailed", message: "", most: 100, want: ""},
		"quoted":    {reason: "Failed", message: "no file (SLU-1202)", most: 100, want: "no file (SLU-1202)"},
		"shortened": {reason: "BuildFailed", message: strings.Repeat("x", 50), most: 20, want: "xxxxxx… (SLU-1202)"},
	} {
		got := WithCode(c.reason, c.message, c.most)
		if got != c.want || len(got) > c.most {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if strings.Contains(WithoutCode(got), "SLU-") {
			t.Errorf("%s: %q has a code", name, WithoutCode(got))
		}
	}
}
