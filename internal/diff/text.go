package diff

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/pmezard/go-difflib/difflib"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	maxText  = 16 << 10 // bytes of a diff
	maxLine  = 300      // characters of a line
	maxLines = 60       // lines of one field
	maxShort = 80       // bytes of a list on one line
	// maxCompared is how many lines of a text that differ are matched with each other, as the time goes with
	// their square.
	maxCompared = 1000
	around      = 1 // unchanged lines shown around those of a text that change
)

// Text returns a readable diff of two objects, as [Objects] finds it: a line a changed field, which begins with ~ if it
// changes, + if it comes and - if it goes, and the changed lines of values that have many. It has at most 16 KiB, no
// character that would steer a terminal, and no end of line at its end. It is empty if nothing changes.
func Text(before, after *unstructured.Unstructured, secrets ...string) string {
	var lines []string
	for _, d := range Objects(before, after, secrets...) {
		lines = append(lines, d.lines()...)
	}
	return Cut(strings.Join(lines, "\n"), maxText)
}

// Cut shortens a text of many lines to so many bytes by leaving out whole lines at its end, and says how many.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const note = "… and %d more lines"
	lines := strings.Split(text, "\n")
	size, n := len(note)+8, 0
	for n < len(lines) && size+len(lines[n])+1 <= most {
		size += len(lines[n]) + 1
		n++
	}
	return strings.Join(append(lines[:n:n], fmt.Sprintf(note, len(lines)-n)), "\n")
}

func (d Difference) lines() []string {
	switch {
	case d.Before == nil:
		return all("+ ", d.Path, d.After)
	case d.After == nil:
		return all("- ", d.Path, d.Before)
	}
	before, after := rendered(d.Before), rendered(d.After)
	if len(before) == 1 && len(after) == 1 {
		return []string{fmt.Sprintf("~ %s: %s → %s", d.Path, before[0], after[0])}
	}
	return append([]string{"~ " + d.Path + ":"}, some(hunks(before, after))...)
}

// all tells a value that comes or goes as a whole.
func all(sign, path string, v any) []string {
	value := rendered(v)
	_, isMap := v.(map[string]any)
	if len(value) == 1 && (!isMap || value[0] == "{}") {
		return []string{sign + path + ": " + value[0]}
	}
	out := []string{sign + path + ":"}
	for _, l := range some(value) {
		out = append(out, sign+"  "+l)
	}
	return out
}

// some keeps a field from filling a page.
func some(lines []string) []string {
	if len(lines) <= maxLines {
		return lines
	}
	return append(lines[:maxLines:maxLines], fmt.Sprintf("… and %d more lines", len(lines)-maxLines))
}

// hunks returns the lines that differ between two texts, with where they begin.
func hunks(before, after []string) []string {
	first := 0
	for first < min(len(before), len(after)) && before[first] == after[first] {
		first++
	}
	end := 0
	for end < min(len(before), len(after))-first && before[len(before)-1-end] == after[len(after)-1-end] {
		end++
	}
	b, a := before[first:len(before)-end], after[first:len(after)-end]
	if len(a)+len(b) > maxCompared {
		return []string{fmt.Sprintf("    lines %d-%d → lines %d-%d", first+1, len(before)-end, first+1, len(after)-end)}
	}
	var out []string
	for _, group := range difflib.NewMatcher(before[max(0, first-around):len(before)-max(0, end-around)],
		after[max(0, first-around):len(after)-max(0, end-around)]).GetGroupedOpCodes(around) {
		at := max(0, first-around)
		out = append(out, fmt.Sprintf("    @@ line %d", at+group[0].J1+1))
		for _, op := range group {
			if op.Tag == 'e' {
				out = append(out, signed("      ", before[at+op.I1:at+op.I2])...)
				continue
			}
			out = append(out, signed("    - ", before[at+op.I1:at+op.I2])...)
			out = append(out, signed("    + ", after[at+op.J1:at+op.J2])...)
		}
	}
	return out
}

func signed(sign string, lines []string) []string {
	out := make([]string, len(lines))
	for n, l := range lines {
		out[n] = sign + l
	}
	return out
}

// rendered returns the lines of a value, at least one: a text as it is, anything else as YAML.
func rendered(v any) []string {
	var lines []string
	switch v := v.(type) {
	case string:
		if !strings.Contains(v, "\n") {
			return []string{printable(quotedIfNeeded(v))}
		}
		lines = strings.Split(strings.TrimSuffix(v, "\n"), "\n")
	case map[string]any, []any:
		if short := onOneLine(v); short != "" {
			return []string{printable(short)}
		}
		b, err := yaml.Marshal(v)
		if err != nil {
			return []string{"(unreadable)"}
		}
		lines = strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	default:
		b, err := json.Marshal(v)
		if err != nil {
			return []string{"(unreadable)"}
		}
		return []string{string(b)}
	}
	for n := range lines {
		lines[n] = printable(lines[n])
	}
	return lines
}

// onOneLine returns a short list of plain values as it is written on one line, else "".
func onOneLine(v any) string {
	list, ok := v.([]any)
	if !ok {
		return ""
	}
	var items []string
	for _, item := range list {
		switch item.(type) {
		case map[string]any, []any:
			return ""
		}
		items = append(items, rendered(item)...)
	}
	line := "[" + strings.Join(items, ", ") + "]"
	if len(items) > len(list) || len(line) > maxShort {
		return ""
	}
	return line
}

// quotedIfNeeded quotes a text that would be taken for something else, such as a number.
func quotedIfNeeded(s string) string {
	if strings.HasPrefix(s, hidden) {
		return s
	}
	var v any
	if err := yaml.Unmarshal([]byte(s), &v); err != nil || v != s {
		return strconv.Quote(s)
	}
	return s
}

// printable cuts a line, and escapes what is not to be printed.
func printable(line string) string {
	if n := len([]rune(line)); n > maxLine {
		line = string([]rune(line)[:maxLine]) + "…"
	}
	var b strings.Builder
	for _, r := range line {
		switch {
		case r == '\t', unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}
