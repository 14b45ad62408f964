package edit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"
)

// text is a parsed file.
type text struct {
	content []byte
	lines   []int // offsets of the lines in bytes
	docs    []*yaml.Node
	parents map[*yaml.Node]*yaml.Node
}

// splice is the replacement of a value.
type splice struct {
	node     *yaml.Node
	from, to int    // offsets in bytes
	raw      string // with quotes
	want     string // without quotes
	change   Change
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// parse parses all documents. A panic of the parser is returned as an error.
func parse(content []byte) (t *text, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the parser failed: %v", p)
		}
	}()
	if !utf8.Valid(content) {
		return nil, errors.New("the text is not UTF-8")
	}
	t = &text{content: content, parents: map[*yaml.Node]*yaml.Node{}}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	for {
		doc := new(yaml.Node)
		if err := decoder.Decode(doc); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if t.docs = append(t.docs, doc); len(t.docs) > maxDocuments {
			return nil, fmt.Errorf("more than %d documents", maxDocuments)
		}
		t.addParents(doc)
	}
	t.lines = lineStarts(content)
	return t, nil
}

func (t *text) addParents(n *yaml.Node) {
	for _, c := range n.Content {
		t.parents[c] = n
		t.addParents(c)
	}
}

// lineStarts returns the offsets of lines as YAML counts them. YAML has five kinds of line breaks.
func lineStarts(content []byte) []int {
	starts := []int{0}
	if bytes.HasPrefix(content, byteOrderMark) {
		starts[0] = len(byteOrderMark)
	}
	for i := starts[0]; i < len(content); {
		n := breakAt(content[i:])
		if n == 0 {
			i++
			continue
		}
		i += n
		starts = append(starts, i)
	}
	return starts
}

// breakAt returns the length of the line break at the start of b, 0 if there is none.
func breakAt(b []byte) int {
	switch {
	case b[0] == '\r' && len(b) > 1 && b[1] == '\n':
		return 2
	case b[0] == '\n', b[0] == '\r':
		return 1
	case bytes.HasPrefix(b, []byte("\u0085")):
		return 2
	case bytes.HasPrefix(b, []byte("\u2028")), bytes.HasPrefix(b, []byte("\u2029")):
		return 3
	}
	return 0
}

// line returns a line without its line break, and its offset. Lines count from 1.
func (t *text) line(n int) ([]byte, int) {
	if n < 1 || n > len(t.lines) {
		return nil, len(t.content)
	}
	from, to := t.lines[n-1], len(t.content)
	if n < len(t.lines) {
		to = t.lines[n]
	}
	line := t.content[from:to]
	for i := range line {
		if breakAt(line[i:]) > 0 {
			return line[:i], from
		}
	}
	return line, from
}

// properties matches the anchor and the tag before a value.
var properties = regexp.MustCompile(`^(?:[&!][^ \t]*[ \t]+)*`)

// span returns the offsets of a scalar without its anchor and tag. Multi-line scalars have no span.
func (t *text) span(n *yaml.Node) (from, to int, ok bool) {
	if n.Kind != yaml.ScalarNode {
		return 0, 0, false
	}
	line, start := t.line(n.Line)
	at := 0
	for range n.Column - 1 {
		_, size := utf8.DecodeRune(line[min(at, len(line)):])
		at += size
	}
	if at > len(line) {
		return 0, 0, false
	}
	at += len(properties.Find(line[at:]))
	rest := string(line[at:])
	length := 0
	switch n.Style &^ yaml.TaggedStyle {
	case 0:
		if !strings.HasPrefix(rest, n.Value) {
			return 0, 0, false
		}
		length = len(n.Value)
	case yaml.DoubleQuotedStyle:
		length = len(doubleQuoted.FindString(rest))
	case yaml.SingleQuotedStyle:
		length = len(singleQuoted.FindString(rest))
	}
	if length == 0 && (n.Tag != "!!null" || n.Value != "") {
		return 0, 0, false
	}
	return start + at, start + at + length, true
}

var (
	doubleQuoted = regexp.MustCompile(`^"(?:[^"\\]|\\.)*"`)
	singleQuoted = regexp.MustCompile(`^'(?:[^']|'')*'`)
)

// isKey reports whether a node is the key of a map.
func (t *text) isKey(n *yaml.Node) bool {
	p := t.parents[n]
	if p == nil || p.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i < len(p.Content); i += 2 {
		if p.Content[i] == n {
			return true
		}
	}
	return false
}

// notString matches plain scalars that a YAML 1.1 or 1.2 parser may not read as a string.
var notString = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null|~|` +
	`[-+]?(\.[0-9_]+|[0-9][0-9_]*(\.[0-9_]*)?)(e[-+]?[0-9]+)?|` +
	`[-+]?[0-9][0-9_]*(:[0-9_.]+)+|0[xob][0-9a-f_]+)$`)

// isPlainString reports whether every parser reads a plain scalar as a string.
func isPlainString(s string) bool {
	if notString.MatchString(s) {
		return false
	}
	n := yaml.Node{Kind: yaml.ScalarNode, Value: s}
	return n.ShortTag() == "!!str"
}

// quote returns the new value of a scalar in the style of the old one. A plain scalar gets quotes if it would not be a
// string otherwise.
func quote(n *yaml.Node, want string) string {
	switch n.Style &^ yaml.TaggedStyle {
	case yaml.DoubleQuotedStyle:
		return `"` + want + `"`
	case yaml.SingleQuotedStyle:
		return "'" + want + "'"
	}
	if !isPlainString(want) {
		return `"` + want + `"`
	}
	return want
}

// splice returns the content with values replaced. The edits must be in order.
func (t *text) splice(edits []splice) []byte {
	var out bytes.Buffer
	at := 0
	for _, s := range edits {
		out.Write(t.content[at:s.from])
		out.WriteString(s.raw)
		at = s.to
	}
	out.Write(t.content[at:])
	return out.Bytes()
}

// verify returns an error if out differs from t in more than the values that were set.
func (t *text) verify(out []byte, edits []splice) error {
	after, err := parse(out)
	if err != nil {
		return err
	}
	wants := make(map[*yaml.Node]string, len(edits))
	for _, s := range edits {
		wants[s.node] = s.want
	}
	if len(t.docs) != len(after.docs) {
		return errors.New("the number of documents would change")
	}
	for i, doc := range t.docs {
		if err := verifyNode(doc, after.docs[i], wants); err != nil {
			return err
		}
		if !slices.Equal(comments(doc), comments(after.docs[i])) {
			return errors.New("a comment would change")
		}
	}
	return nil
}

// comments returns all comments of a document, sorted, as a comment after an empty value moves from the key
// to the value.
func comments(doc *yaml.Node) (all []string) {
	var visit func(n *yaml.Node)
	visit = func(n *yaml.Node) {
		all = append(all, n.HeadComment, n.LineComment, n.FootComment)
		for _, c := range n.Content {
			visit(c)
		}
	}
	visit(doc)
	slices.Sort(all)
	return all
}

func verifyNode(before, after *yaml.Node, wants map[*yaml.Node]string) error {
	differs := func() error { return fmt.Errorf("line %d would change", before.Line) }
	if want, set := wants[before]; set {
		if after.Kind != yaml.ScalarNode || after.Value != want || after.ShortTag() != "!!str" {
			return differs()
		}
	} else if before.Value != after.Value || before.Tag != after.Tag || before.Style != after.Style {
		return differs()
	}
	if before.Kind != after.Kind || before.Anchor != after.Anchor || before.Line != after.Line ||
		len(before.Content) != len(after.Content) {
		return differs()
	}
	for i := range before.Content {
		if err := verifyNode(before.Content[i], after.Content[i], wants); err != nil {
			return err
		}
	}
	return nil
}
