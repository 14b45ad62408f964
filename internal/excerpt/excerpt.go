// Package excerpt fits texts that others wrote into bounds.
package excerpt

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const ellipsis = "…"

// Bytes returns a text in at most so many bytes: the whole characters at its beginning and an ellipsis, if
// there are more.
func Bytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := max(most-len(ellipsis), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}

// Chars returns a text in at most so many characters: its beginning and an ellipsis, if there are more;
// nothing if there is no room for that.
func Chars(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	if most < 1 {
		return ""
	}
	return strings.TrimSpace(string([]rune(text)[:most-1])) + ellipsis
}

// Line returns a text as one line of at most so many bytes, with nothing in it that does not print.
func Line(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "?"))
	return Bytes(strings.Join(strings.Fields(text), " "), most)
}
