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

// text is a file with the documents in it, and where its lines begin.
type text struct {
	content []byte
	lines   []int // offsets in bytes
	docs    []*yaml.Node
	parents map[*yaml.Node]*yaml.Node
}

// splice is a value to be written over another.
type splice struct {
	node     *yaml.Node
	from, to int // offsets in bytes
	raw      string
	want     string
	change   Change
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// parse reads all documents. What a parser panics about is an error.
func parse(content []byte) (t *text, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the parser fails: %v", p)
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
			return nil, fmt.Errorf("it has more than %d documents", maxDocuments)
		}
		t.adopt(doc)
	}
	t.lines = lineStarts(content)
	return t, nil
}

func (t *text) adopt(n *yaml.Node) {
	for _, c := range n.Content {
		t.parents[c] = n
		t.adopt(c)
	}
}

// lineStarts counts lines as YAML does, for which five sequences end one.
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

// breakAt is the length of the line break that b begins with.
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

// line is a line without its end, and its offset; lines count from 1.
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

// properties are the anchor and the tag before a value.
var properties = regexp.MustCompile(`^(?:[&!][^ \t]*[ \t]+)*`)

// span is where a scalar stands in the file, without its anchor and tag. Scalars of several lines have none.
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

// isKey tells whether a node is the key of a map.
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

// notText are plain scalars that some parser of YAML 1.1 or 1.2 takes for something else than a text.
var notText = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null|~|[-+]?(\.[0-9_]+|[0-9][0-9_]*(\.[0-9_]*)?)(e[-+]?[0-9]+)?|[-+]?[0-9][0-9_]*(:[0-9_.]+)+|0[xob][0-9a-f_]+)$`)

// readsAsText tells whether a plain scalar is a text for every parser.
func readsAsText(s string) bool {
	if notText.MatchString(s) {
		return false
	}
	n := yaml.Node{Kind: yaml.ScalarNode, Value: s}
	return n.ShortTag() == "!!str"
}

// write is the scalar's new text in the style of the old one. A plain scalar gets quotes where it would not
// be a text without.
func write(n *yaml.Node, want string) string {
	switch n.Style &^ yaml.TaggedStyle {
	case yaml.DoubleQuotedStyle:
		return `"` + want + `"`
	case yaml.SingleQuotedStyle:
		return "'" + want + "'"
	}
	if !readsAsText(want) {
		return `"` + want + `"`
	}
	return want
}

// splice writes values over others; they are in order.
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

// same makes sure that out is the same documents but for the values that were set.
func (t *text) same(out []byte, edits []splice) error {
	now, err := parse(out)
	if err != nil {
		return err
	}
	wants := make(map[*yaml.Node]string, len(edits))
	for _, s := range edits {
		wants[s.node] = s.want
	}
	if len(t.docs) != len(now.docs) {
		return errors.New("the number of documents would change")
	}
	for i, doc := range t.docs {
		if err := sameNode(doc, now.docs[i], wants); err != nil {
			return err
		}
		if !slices.Equal(comments(doc), comments(now.docs[i])) {
			return errors.New("a comment would become different")
		}
	}
	return nil
}

// comments are all of a document, sorted: a comment behind a value that was empty moves from its key to it.
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

func sameNode(was, is *yaml.Node, wants map[*yaml.Node]string) error {
	differs := func() error { return fmt.Errorf("line %d would become different", was.Line) }
	if want, set := wants[was]; set {
		if is.Kind != yaml.ScalarNode || is.Value != want || is.ShortTag() != "!!str" {
			return differs()
		}
	} else if was.Value != is.Value || was.Tag != is.Tag || was.Style != is.Style {
		return differs()
	}
	if was.Kind != is.Kind || was.Anchor != is.Anchor || was.Line != is.Line || len(was.Content) != len(is.Content) {
		return differs()
	}
	for i := range was.Content {
		if err := sameNode(was.Content[i], is.Content[i], wants); err != nil {
			return err
		}
	}
	return nil
}
