// Package excerpt shortens texts from outside, such as responses of servers, to a maximum length.
package excerpt

import (
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

const ellipsis = "…"

// Bytes returns the text, shortened to at most most bytes. A shortened text ends with an ellipsis and has only complete
// characters.
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

// Chars returns the text, shortened to at most most characters. A shortened text ends with an ellipsis. The result is
// empty if most is less than 1.
func Chars(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	if most < 1 {
		return ""
	}
	return strings.TrimSpace(string([]rune(text)[:most-1])) + ellipsis
}

// Line returns the text as one line of at most most bytes. Characters that are not printable are replaced by spaces.
func Line(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "?"))
	return Bytes(strings.Join(strings.Fields(text), " "), most)
}

// Count returns a number with a noun that agrees, such as "1 object" and "2 objects".
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// Head is a writer that keeps the first bytes of what is written. It is safe for concurrent use.
type Head struct {
	Most int // bytes that are kept

	mu   sync.Mutex
	text []byte
}

func (h *Head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text = append(h.text, p[:min(len(p), h.Most-len(h.text))]...)
	return len(p), nil
}

func (h *Head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.text)
}
