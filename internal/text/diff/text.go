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

	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

const (
	maxText  = 16 << 10 // bytes
	maxLine  = 300      // characters
	maxLines = 60       // of one field
	maxShort = 80       // bytes of a list that is written on one line
	// maxCompared is the maximum number of lines that are matched with each other. The time grows with their square.
	maxCompared  = 1000
	contextLines = 1 // unchanged lines contextLines changed ones
)

// Text returns the differences of [Objects] as text, with a line for each changed field. The line begins with ~ if the
// field changed, + if it was added and - if it was removed. The changed lines of a long value follow. The
// text has at most 16 KiB, no control characters and no newline at its end. It is empty if there are no
// differences.
func Text(before, after *unstructured.Unstructured) string {
	var lines []string
	for _, d := range Objects(before, after) {
		lines = append(lines, d.lines()...)
	}
	return Cut(strings.Join(lines, "\n"), maxText)
}

// Cut shortens a text to a number of bytes. It removes whole lines at the end, and adds a line with their number.
func Cut(text string, maxBytes int) string {
	if len(text) <= maxBytes {
		return text
	}
	const maxNote = 32 // bytes of the added line
	lines := strings.Split(text, "\n")
	size, n := maxNote, 0
	for n < len(lines) && size+len(lines[n])+1 <= maxBytes {
		size += len(lines[n]) + 1
		n++
	}
	return strings.Join(append(lines[:n:n], moreLines(len(lines)-n)), "\n")
}

func moreLines(n int) string { return "… and " + excerpt.Count(n, "more line") }

func (d Difference) lines() []string {
	switch {
	case d.Before == nil:
		return wholeValue("+ ", d.Path, d.After)
	case d.After == nil:
		return wholeValue("- ", d.Path, d.Before)
	}
	before, after := rendered(d.Before), rendered(d.After)
	if len(before) == 1 && len(after) == 1 {
		return []string{fmt.Sprintf("~ %s: %s → %s", d.Path, before[0], after[0])}
	}
	return append([]string{"~ " + d.Path + ":"}, limited(hunks(before, after))...)
}

// wholeValue returns the lines for a value that was added or removed.
func wholeValue(sign, path string, v any) []string {
	value := rendered(v)
	_, isMap := v.(map[string]any)
	if len(value) == 1 && (!isMap || value[0] == "{}") {
		return []string{sign + path + ": " + value[0]}
	}
	out := []string{sign + path + ":"}
	for _, l := range limited(value) {
		out = append(out, sign+"  "+l)
	}
	return out
}

// limited returns at most maxLines lines.
func limited(lines []string) []string {
	if len(lines) <= maxLines {
		return lines
	}
	return append(lines[:maxLines:maxLines], moreLines(len(lines)-maxLines))
}

// hunks returns the lines that differ between two texts, with line numbers.
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
	for _, group := range difflib.NewMatcher(before[max(0, first-contextLines):len(before)-max(0, end-contextLines)],
		after[max(0, first-contextLines):len(after)-max(0, end-contextLines)]).GetGroupedOpCodes(contextLines) {
		at := max(0, first-contextLines)
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

// signed adds a prefix to all lines.
func signed(sign string, lines []string) []string {
	out := make([]string, len(lines))
	for n, l := range lines {
		out[n] = sign + l
	}
	return out
}

// rendered returns the lines of a value, at least one. A string is returned as it is, other values as YAML.
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

// onOneLine returns a short list of scalar values on one line; empty for other values.
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

// quotedIfNeeded quotes a string that YAML would parse as another type, such as a number.
func quotedIfNeeded(s string) string {
	if strings.HasPrefix(s, masked) {
		return s
	}
	var v any
	if err := yaml.Unmarshal([]byte(s), &v); err != nil || v != s {
		return strconv.Quote(s)
	}
	return s
}

// printable cuts a long line, and escapes control characters.
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
