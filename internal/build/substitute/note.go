package substitute

import (
	"fmt"
	"regexp"
	"strings"
)

// Note says that a value is other than the text that its expressions gave, because YAML reads the text so.
type Note struct {
	Field     string
	Variables []string // that the field names
	Type      string   // number, boolean, list, map or null; empty if the value is text
	// IsCut reports whether a part of the text is gone, as YAML took it for a comment, a tag or an anchor.
	IsCut bool
	was   string
}

// Keep returns the text of the field that keeps the value as it is, with the variable quote.
func (n Note) Keep() string { return "'${quote}" + n.was + "${quote}'" }

// String describes the note without the value, which may be secret.
func (n Note) String() string {
	noun := "variable " + strings.Join(n.Variables, ", ")
	if n.IsCut {
		return fmt.Sprintf("%s: a part of the value of %s is lost, because YAML takes it for a comment, a tag or an "+
			"anchor", n.Field, noun)
	}
	return fmt.Sprintf("%s: YAML reads the value of %s as %s", n.Field, noun, n.Type)
}

// named matches the name of a variable in an expression. A doubled $ makes no expression.
var named = regexp.MustCompile(`\$\$|\$\{#?([A-Za-z_][A-Za-z0-9_]*)`)

// note records that a value differs from its text.
func (w *walker) note(field, was, text string, value any) {
	n := Note{Field: field, was: was, IsCut: isCut(text, value)}
	switch v := value.(type) {
	case string:
	case nil:
		n.Type = "null"
	case bool:
		n.Type = "a boolean"
	case []any:
		n.Type = "a list"
	case map[string]any:
		n.Type = "a map"
	default:
		_ = v
		n.Type = "a number"
	}
	if n.Type == "" && !n.IsCut {
		return
	}
	seen := map[string]bool{}
	for _, m := range named.FindAllStringSubmatch(was, -1) {
		if m[1] != "" && !seen[m[1]] {
			seen[m[1]] = true
			n.Variables = append(n.Variables, m[1])
		}
	}
	if len(n.Variables) > 0 {
		w.notes = append(w.notes, n)
	}
}

// isCut reports whether YAML left out a part of the text: a comment, a tag that is none of YAML's own, an anchor, or
// the sign of a block. Quotes, and space around the text, may go.
func isCut(text string, value any) bool {
	text = strings.TrimSpace(text)
	if text == "" || strings.ContainsAny(text[:1], `"'[{`) || strings.HasPrefix(text, "!!") {
		return false
	}
	if s, ok := value.(string); ok {
		return s != text
	}
	return strings.ContainsAny(text[:1], "#!&") || strings.Contains(text, " #") || strings.Contains(text, "\t#")
}
