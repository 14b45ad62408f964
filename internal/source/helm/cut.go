package helm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
)

// maxPiece bounds a line, and the input that is passed to the YAML library at once, in bytes.
const maxPiece = 1 << 20

// cutter parses an index in YAML without loading it into memory. All generators of indexes write YAML in
// block style. It is cut by indentation: into charts, into their entries, and of these into the few keys that
// are needed. Only those lines are passed to the YAML library. An index in another layout, such as flow
// style, is parsed at once if it is small, and refused otherwise.
type cutter struct {
	r *bufio.Reader
	b *indexBuilder

	number   int    // of the current line
	line     []byte // the current line, without its line break
	indent   int    // of the current line; -1 if it is blank or a comment
	ended    bool
	isUnread bool // next returns the current line again
}

func newCutter(r *bufio.Reader, b *indexBuilder) *cutter { return &cutter{r: r, b: b} }

// run parses the index.
func (c *cutter) run() error {
	err := c.document()
	if err != nil {
		return fmt.Errorf("line %d: %w", c.number, err)
	}
	return nil
}

// next moves to the next line, and reports whether there is one.
func (c *cutter) next() (bool, error) {
	if c.isUnread {
		c.isUnread = false
		return !c.ended, nil
	}
	if c.ended {
		return false, nil
	}
	c.line = c.line[:0]
	for {
		part, err := c.r.ReadSlice('\n')
		if len(c.line)+len(part) > maxPiece {
			return false, fmt.Errorf("the line exceeds %d bytes", maxPiece)
		}
		c.line = append(c.line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) && len(c.line) == 0 {
			c.ended = true
			return false, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		break
	}
	c.number++
	c.line = bytes.TrimRight(c.line, "\r\n")
	text := bytes.TrimLeft(c.line, " ")
	c.indent = len(c.line) - len(text)
	if blank := bytes.TrimLeft(text, " \t"); len(blank) == 0 || blank[0] == '#' {
		c.indent = -1
	}
	return true, nil
}

// unread makes next return the current line again.
func (c *cutter) unread() { c.isUnread = true }

// text returns the current line without its indentation.
func (c *cutter) text() string { return string(c.line[max(c.indent, 0):]) }

// document parses the first document of the file. Others are ignored, as in Helm.
func (c *cutter) document() error {
	for begun := false; ; {
		more, err := c.next()
		if err != nil || !more {
			return err
		}
		text := c.text()
		switch {
		case c.indent < 0, !begun && strings.HasPrefix(text, "%"):
			continue
		case c.indent == 0 && (text == "---" || strings.HasPrefix(text, "--- ")):
			if begun {
				return nil
			}
			continue
		case c.indent == 0 && text == "...":
			return nil
		case c.indent > 0:
			return errors.New("unexpected indentation of a key of the index")
		}
		begun = true
		if err := c.topKey(text); err != nil {
			return err
		}
	}
}

// topKey parses a key of the document, and its value.
func (c *cutter) topKey(text string) error {
	key, value, ok := splitKey(text)
	switch {
	case !ok:
		return errors.New("expected a key of the index")
	case key == "entries" && c.b.hasEntries:
		return errors.New("duplicate key 'entries'")
	case key == "entries" && value == "":
		c.b.hasEntries = true
		return c.charts()
	case key == "entries":
		c.b.hasEntries = true
		var whole struct {
			Entries map[string][]*item `yaml:"entries"`
		}
		return c.piece(0, &whole, func() error { return c.addAll(whole.Entries) })
	case key == "apiVersion":
		var whole struct {
			APIVersion string `yaml:"apiVersion"`
		}
		return c.piece(0, &whole, func() error { c.b.apiVersion = whole.APIVersion; return nil })
	}
	return c.value(0, func([]byte) error { return nil })
}

// charts parses the value of entries: one key for each chart, with the same indentation.
func (c *cutter) charts() error {
	for depth := 0; ; {
		more, err := c.next()
		if err != nil || !more {
			return err
		}
		if c.indent < 0 {
			continue
		}
		if depth == 0 {
			depth = c.indent
		}
		switch {
		case c.indent == 0:
			c.unread()
			return nil
		case c.indent != depth:
			return errors.New("the indentation differs from that of the previous charts")
		}
		if err := c.chart(depth); err != nil {
			return err
		}
	}
}

// chart parses the key of a chart, and its list of entries.
func (c *cutter) chart(depth int) error {
	name, value, ok := splitKey(c.text())
	if !ok {
		return errors.New("expected the name of a chart")
	}
	if value != "" {
		var whole map[string][]*item
		return c.piece(depth, &whole, func() error { return c.addAll(whole) })
	}
	if err := c.b.open(name); err != nil {
		return err
	}
	for dash := -1; ; {
		more, err := c.next()
		if err != nil || !more {
			return err
		}
		if c.indent < 0 {
			continue
		}
		isItem := startsItem(c.text())
		if c.indent < depth || c.indent == depth && !isItem {
			c.unread()
			return nil
		}
		if dash < 0 {
			dash = c.indent
		}
		if !isItem || c.indent != dash {
			return errors.New("expected an entry in the list of the chart")
		}
		if err := c.entry(name, dash); err != nil {
			return err
		}
	}
}

// entry parses an entry of a list whose dashes are in column dash. Only the lines with the needed keys are retained.
func (c *cutter) entry(name string, dash int) error {
	rest := strings.TrimLeft(c.text()[1:], " ")
	depth := len(c.line) - len(rest) // indentation of the keys of the entry
	c.line[dash] = ' '
	c.indent = depth
	if rest == "" || rest[0] == '#' {
		depth, c.indent = -1, -1
	}
	var kept []byte
	keep := true
	if _, _, ok := splitKey(rest); !ok && depth >= 0 {
		depth = len(c.line) + maxPiece // flow style, or unknown content: retain all lines
	}
	for {
		if c.indent >= 0 && depth < 0 {
			depth = c.indent
		}
		if c.indent == depth && depth >= 0 {
			if key, _, ok := splitKey(c.text()); ok && !startsItem(c.text()) {
				keep = key == "version" || key == "digest" || key == "urls" || key == "created"
			}
		}
		if keep {
			if len(kept)+len(c.line) > maxPiece {
				return fmt.Errorf("an entry of %.100q exceeds %d bytes", name, maxPiece)
			}
			kept = append(append(kept, c.line...), '\n')
		}
		more, err := c.next()
		if err != nil {
			return err
		}
		if !more || c.indent >= 0 && c.indent <= dash {
			c.unread()
			break
		}
	}
	var i item
	if err := unmarshal(kept, &i); err != nil {
		return fmt.Errorf("an entry of %.100q: %w", name, err)
	}
	return c.b.add(name, i)
}

// addAll adds charts that were parsed at once.
func (c *cutter) addAll(charts map[string][]*item) error {
	for name, items := range charts {
		if err := c.b.open(name); err != nil {
			return err
		}
		for _, i := range items {
			if i == nil {
				i = &item{}
			}
			if err := c.b.add(name, *i); err != nil {
				return err
			}
		}
	}
	return nil
}

// piece unmarshals the current key and its whole value, and then calls use.
func (c *cutter) piece(depth int, into any, use func() error) error {
	var whole []byte
	err := c.value(depth, func(line []byte) error {
		if len(whole)+len(line) > maxPiece {
			return fmt.Errorf("the value exceeds %d bytes: write the index in YAML block style or in JSON", maxPiece)
		}
		whole = append(append(whole, line...), '\n')
		return nil
	})
	if err != nil {
		return err
	}
	if err := unmarshal(whole, into); err != nil {
		return err
	}
	return use()
}

// value calls visit for the current line, which has a key at depth, and for every line of its value.
func (c *cutter) value(depth int, visit func(line []byte) error) error {
	for {
		if err := visit(c.line); err != nil {
			return err
		}
		more, err := c.next()
		if err != nil {
			return err
		}
		if !more || c.indent >= 0 && c.indent <= depth && !(c.indent == depth && continues(c.text())) {
			c.unread()
			return nil
		}
	}
}

// continues reports whether a line with the indentation of a key belongs to the value of that key: an item of
// a list, or the end of a flow collection.
func continues(text string) bool {
	return startsItem(text) || strings.HasPrefix(text, "]") || strings.HasPrefix(text, "}")
}

// startsItem reports whether a line starts an item of a list.
func startsItem(text string) bool { return text == "-" || strings.HasPrefix(text, "- ") }

// splitKey splits "key: value". A comment is not a value.
func splitKey(text string) (key, value string, ok bool) {
	if text == "" {
		return "", "", false
	}
	switch text[0] {
	case '"', '\'':
		key, text, ok = quotedKey(text)
		if !ok {
			return "", "", false
		}
		text = strings.TrimLeft(text, " ")
	default:
		if strings.IndexByte("[]{},#&*!|>%@`\t", text[0]) >= 0 || isIndicator(text) {
			return "", "", false
		}
		end := strings.Index(text, ": ")
		if end < 0 {
			if !strings.HasSuffix(text, ":") {
				return "", "", false
			}
			end = len(text) - 1
		}
		key, text = strings.TrimRight(text[:end], " "), text[end:]
	}
	value, ok = strings.CutPrefix(text, ":")
	value = strings.TrimSpace(value)
	if strings.HasPrefix(value, "#") {
		value = ""
	}
	return key, value, ok
}

// isIndicator reports whether a text begins an item of a list or a complex key, and not a name such as "-x".
func isIndicator(text string) bool {
	return strings.IndexByte("-?", text[0]) >= 0 && (len(text) == 1 || text[1] == ' ' || text[1] == '\t')
}

// quotedKey returns the quoted string at the start of s, and the rest of s.
func quotedKey(s string) (key, rest string, ok bool) {
	quote, plain := s[0], true
	for i := 1; i < len(s); i++ {
		switch {
		case quote == '"' && s[i] == '\\', quote == '\'' && strings.HasPrefix(s[i:], "''"):
			plain = false
			i++
		case s[i] == quote && plain:
			return s[1:i], s[i+1:], true
		case s[i] == quote:
			err := unmarshal([]byte(s[:i+1]), &key)
			return key, s[i+1:], err == nil
		}
	}
	return "", "", false
}

// unmarshal unmarshals YAML. It converts panics, which the library raises for some invalid input, to errors.
func unmarshal(piece []byte, into any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("invalid YAML")
		}
	}()
	return yamlsize.Unmarshal(piece, into)
}
