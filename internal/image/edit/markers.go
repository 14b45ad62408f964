package edit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

const setterKey = "$imagepolicy"

// Markers sets the values that comments mark: # {"$imagepolicy": "namespace:name"} at the end of a line marks
// the value before it; with :name, :tag or :digest at its end, a part of the image goes there. Images are by
// "namespace:name" of their policy. What is wrong with a marker is told, and all others are followed.
func Markers(file string, content []byte, images map[string]Ref) Result {
	e := &editing{file: file, result: Result{Content: content}}
	if !bytes.Contains(content, []byte(setterKey)) || !e.parse(content) {
		return e.result
	}
	byLine := e.text.scalars()
	for n := range e.text.lines {
		if line, start := e.text.line(n + 1); bytes.Contains(line, []byte(setterKey)) {
			e.mark(n+1, line, start, byLine, images)
		}
	}
	return e.finish()
}

// scalars are all scalars and aliases by line, in the order in which they stand.
func (t *text) scalars() map[int][]*yaml.Node {
	byLine := map[int][]*yaml.Node{}
	var visit func(n *yaml.Node)
	visit = func(n *yaml.Node) {
		if n.Kind == yaml.ScalarNode || n.Kind == yaml.AliasNode {
			byLine[n.Line] = append(byLine[n.Line], n)
		}
		for _, c := range n.Content {
			visit(c)
		}
	}
	for _, doc := range t.docs {
		visit(doc)
	}
	for _, nodes := range byLine {
		slices.SortStableFunc(nodes, func(a, b *yaml.Node) int { return cmp.Compare(a.Column, b.Column) })
	}
	return byLine
}

// mark follows the marker of a line.
func (e *editing) mark(n int, line []byte, start int, byLine map[int][]*yaml.Node, images map[string]Ref) {
	if trimmed := bytes.TrimLeft(line, " \t"); len(trimmed) > 0 && trimmed[0] == '#' {
		return // a line that was commented out marks nothing
	}
	nodes := byLine[n]
	if len(nodes) == 0 {
		return // a line of a longer text
	}
	node := nodes[len(nodes)-1]
	_, to, ok := e.text.span(node)
	if !ok && node.Kind != yaml.AliasNode {
		if !strings.Contains(node.Value, setterKey) {
			e.problem(n, "the marker stands after a value of several lines, which cannot be set")
		}
		return
	}
	if node.Kind == yaml.AliasNode {
		to = start + bytes.IndexByte(line, '*') + 1 + len(node.Value)
	}
	comment, ok := commentAfter(e.text.content[to : start+len(line)])
	if !ok {
		return // inside of a text
	}
	marker, err := parseMarker(comment)
	if err != nil {
		e.problem(n, "malformed marker: %s", err)
		return
	}
	e.names(marker.policy)
	image, known := images[marker.policy]
	switch {
	case !known:
		e.report(Problem{Line: n, Policy: marker.policy,
			Message: fmt.Sprintf("the marker names the policy %s, of which there is no image", marker.policy)})
	case !image.Valid():
		e.problem(n, "the image of the policy %s is no reference", marker.policy)
	case node.Kind == yaml.AliasNode && e.becomes(node.Alias) != marker.value(image):
		e.problem(n, "the marker stands after an alias: mark the value that &%s names", node.Value)
	case e.text.isKey(node):
		e.problem(n, "the marker stands after a key: it must stand on the line of the value")
	default:
		e.set(node, marker.value(image), Change{Policy: marker.policy, Setter: marker.String()})
	}
}

// commentAfter is the comment behind a value, of which nothing but what ends flow style may stand before it.
func commentAfter(rest []byte) (string, bool) {
	before, comment, found := bytes.Cut(rest, []byte("#"))
	if !found || len(before) == 0 || !bytes.ContainsAny(before[len(before)-1:], " \t") ||
		len(bytes.Trim(before, " \t,]}")) > 0 {
		return "", false
	}
	return string(comment), true
}

// marker is what a marker comment asks for.
type marker struct{ policy, field string }

func (m marker) String() string { return strings.TrimSuffix(m.policy+":"+m.field, ":") }

func (m marker) value(r Ref) string {
	switch m.field {
	case "name":
		return r.Name
	case "tag":
		return r.Tag
	case "digest":
		return r.Digest
	}
	return r.String()
}

// parseMarker reads the JSON in a comment; other words may stand around it.
func parseMarker(comment string) (marker, error) {
	at := strings.LastIndexByte(comment[:max(0, strings.Index(comment, setterKey))], '{')
	if at < 0 {
		return marker{}, fmt.Errorf(`want # {"%s": "namespace:name"}`, setterKey)
	}
	var content map[string]string
	if err := json.NewDecoder(strings.NewReader(comment[at:])).Decode(&content); err != nil {
		return marker{}, fmt.Errorf(`want # {"%s": "namespace:name"}: %s`, setterKey, oneLine(err.Error()))
	}
	parts := strings.Split(content[setterKey], ":")
	switch {
	case len(parts) < 2 || len(parts) > 3 || !isName(parts[0]) || !isName(parts[1]):
		return marker{}, fmt.Errorf("%q is not of the form namespace:name, namespace:name:tag, …:name or …:digest",
			oneLine(content[setterKey]))
	case len(parts) == 2:
		return marker{policy: content[setterKey]}, nil
	case parts[2] != "name" && parts[2] != "tag" && parts[2] != "digest":
		return marker{}, fmt.Errorf("%q is no part of an image: it has a name, a tag and a digest", oneLine(parts[2]))
	}
	return marker{policy: parts[0] + ":" + parts[1], field: parts[2]}, nil
}

// isName tells whether s may be the name of an object.
func isName(s string) bool {
	return s != "" && len(s) <= 253 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789.-") == "" && s[0] != '-' &&
		s[0] != '.'
}

// set writes a value over a scalar, unless it is there already.
func (e *editing) set(node *yaml.Node, want string, c Change) {
	from, to, ok := e.text.span(node)
	switch {
	case want == "":
		e.problem(node.Line, "the image of the policy %s has no such part (%s); for a digest set "+
			"spec.digestReflectionPolicy", c.Policy, c.Setter)
		return
	case node.Kind == yaml.AliasNode && e.becomes(node.Alias) == want:
		return
	case node.Kind == yaml.AliasNode:
		e.problem(node.Line, "is an alias, and others may share its value: bind or mark the value that &%s names",
			node.Value)
		return
	case !ok:
		e.problem(node.Line, "is no text of one line, and cannot be set")
		return
	case strings.Contains(node.Value, "{{") || strings.Contains(node.Value, "${"):
		e.problem(node.Line, "is a template, and left alone")
		return
	case node.Value == want:
		return
	}
	for _, other := range e.edits {
		if other.node == node {
			if other.want != want {
				e.problem(node.Line, "is set by two policies: %s and %s", other.change.Policy, c.Policy)
			}
			return
		}
	}
	raw := write(node, want)
	if from == to && from > 0 && !bytes.ContainsAny(e.text.content[from-1:from], " \t") {
		raw = " " + raw
	}
	c.File, c.Line, c.Old, c.New = e.file, node.Line, node.Value, want
	c.Object, c.Container = e.text.place(node)
	e.edits = append(e.edits, splice{node: node, from: from, to: to, raw: raw, want: want, change: c})
}

// becomes is the value that a scalar has in the end.
func (e *editing) becomes(node *yaml.Node) string {
	for _, edit := range e.edits {
		if edit.node == node {
			return edit.want
		}
	}
	return node.Value
}

// place is the object and the container that a value belongs to.
func (t *text) place(node *yaml.Node) (object Object, container string) {
	for n := t.parents[node]; n != nil; n = t.parents[n] {
		if n.Kind != yaml.MappingNode {
			continue
		}
		if isObject(n) {
			return identity(n), container
		}
		if list := t.parents[n]; container == "" && list != nil && list.Kind == yaml.SequenceNode &&
			isContainers(t.keyOf(list)) {
			container = at(n, "name")
		}
	}
	return object, container
}

// keyOf is the key that a value has in its map.
func (t *text) keyOf(n *yaml.Node) string {
	p := t.parents[n]
	if p == nil || p.Kind != yaml.MappingNode {
		return ""
	}
	for i := 1; i < len(p.Content); i += 2 {
		if p.Content[i] == n {
			return p.Content[i-1].Value
		}
	}
	return ""
}
