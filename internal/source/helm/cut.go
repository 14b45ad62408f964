package helm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxPiece bounds the bytes of what is given to the YAML library at once, and of a line.
const maxPiece = 1 << 20

// cutter reads an index in YAML without holding it. YAML of the block style, in which every generator of
// indexes writes, is cut at its indentation: into charts, into their entries, and of these into the few keys
// that are needed. What is left, some lines, is read by the YAML library. What is not laid out like that (an
// index in flow style) is read as one piece if it is small, or refused.
type cutter struct {
	r *bufio.Reader
	b *indexBuilder

	number int    // of the current line
	line   []byte // without its end
	indent int    // of the current line; -1 when it is blank or a comment
	ended  bool
	again  bool // the current line is yet to be read
}

func newCutter(r *bufio.Reader, b *indexBuilder) *cutter { return &cutter{r: r, b: b} }

func (c *cutter) run() error {
	err := c.document()
	if err != nil {
		return fmt.Errorf("line %d: %w", c.number, err)
	}
	return nil
}

// next moves to the next line and tells whether there is one. A second document is not read, as in Helm.
func (c *cutter) next() (bool, error) {
	if c.again {
		c.again = false
		return !c.ended, nil
	}
	if c.ended {
		return false, nil
	}
	c.line = c.line[:0]
	for {
		part, err := c.r.ReadSlice('\n')
		if len(c.line)+len(part) > maxPiece {
			return false, fmt.Errorf("more than %d bytes", maxPiece)
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

// back makes the current line the next one again.
func (c *cutter) back() { c.again = true }

// text is the current line without its indentation.
func (c *cutter) text() string { return string(c.line[max(c.indent, 0):]) }

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
			return errors.New("indented, where a key of the index is expected")
		}
		begun = true
		if err := c.topKey(text); err != nil {
			return err
		}
	}
}

// topKey reads one key of the document with its value.
func (c *cutter) topKey(text string) error {
	key, value, ok := splitKey(text)
	switch {
	case !ok:
		return errors.New("not a key of an index")
	case key == "entries" && c.b.hasEntries:
		return errors.New("the key entries stands there twice")
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

// charts reads the block below entries: a key per chart, at one indentation.
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
			c.back()
			return nil
		case c.indent != depth:
			return errors.New("indented otherwise than the charts before")
		}
		if err := c.chart(depth); err != nil {
			return err
		}
	}
}

// chart reads a chart's key and its list of entries.
func (c *cutter) chart(depth int) error {
	name, value, ok := splitKey(c.text())
	if !ok {
		return errors.New("not the name of a chart")
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
			c.back()
			return nil
		}
		if dash < 0 {
			dash = c.indent
		}
		if !isItem || c.indent != dash {
			return errors.New("not an entry of the chart's list")
		}
		if err := c.entry(name, dash); err != nil {
			return err
		}
	}
}

// entry reads one entry of a list whose dashes stand at dash. Only the lines of the keys that are needed are kept.
func (c *cutter) entry(name string, dash int) error {
	rest := strings.TrimLeft(c.text()[1:], " ")
	depth := len(c.line) - len(rest) // of the entry's keys
	c.line[dash] = ' '
	c.indent = depth
	if rest == "" || rest[0] == '#' {
		depth, c.indent = -1, -1
	}
	var kept []byte
	keep := true
	if _, _, ok := splitKey(rest); !ok && depth >= 0 {
		depth = len(c.line) + maxPiece // flow style, or nothing of ours: kept as a whole
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
				return fmt.Errorf("an entry of %.100q has more than %d bytes", name, maxPiece)
			}
			kept = append(append(kept, c.line...), '\n')
		}
		more, err := c.next()
		if err != nil {
			return err
		}
		if !more || c.indent >= 0 && c.indent <= dash {
			c.back()
			break
		}
	}
	var i item
	if err := unmarshal(kept, &i); err != nil {
		return fmt.Errorf("an entry of %.100q: %w", name, err)
	}
	return c.b.add(name, i)
}

// addAll adds charts that were read as one piece.
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

// piece reads the current key and its value as a whole into what, and calls use.
func (c *cutter) piece(depth int, what any, use func() error) error {
	var whole []byte
	err := c.value(depth, func(line []byte) error {
		if len(whole)+len(line) > maxPiece {
			return fmt.Errorf("more than %d bytes in one piece: write the index in YAML's block style or in JSON",
				maxPiece)
		}
		whole = append(append(whole, line...), '\n')
		return nil
	})
	if err != nil {
		return err
	}
	if err := unmarshal(whole, what); err != nil {
		return err
	}
	return use()
}

// value calls visit for the current line, that of a key at depth, and for every line of its value.
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
			c.back()
			return nil
		}
	}
}

// continues tells a line at a key's own indentation that yet belongs to its value: of a list, or the end of a flow.
func continues(text string) bool {
	return startsItem(text) || strings.HasPrefix(text, "]") || strings.HasPrefix(text, "}")
}

func startsItem(text string) bool { return text == "-" || strings.HasPrefix(text, "- ") }

// splitKey splits "key: value"; a value that is only a comment is none.
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
		if strings.IndexByte("-?[]{},#&*!|>%@`\t", text[0]) >= 0 {
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

// quotedKey reads the quoted text that s starts with, and returns what follows.
func quotedKey(s string) (key, rest string, ok bool) {
	if s[0] == '"' {
		quoted, err := strconv.QuotedPrefix(s)
		if err != nil {
			return "", "", false
		}
		key, err = strconv.Unquote(quoted)
		return key, s[len(quoted):], err == nil
	}
	end := strings.IndexByte(s[1:], '\'')
	if end < 0 {
		return "", "", false
	}
	return s[1 : end+1], s[end+2:], true
}

// unmarshal reads a piece. The library panics on some input that it cannot read.
func unmarshal(piece []byte, into any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("this is no valid YAML")
		}
	}()
	return yaml.Unmarshal(piece, into)
}
