package edit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

const setterKey = "$imagepolicy"

// Markers sets the values that comments mark: # {"$imagepolicy": "namespace:name"} at the end of a line marks the value
// before it. With the suffix :name, :tag or :digest, the value is set to that part of the image. Images are by
// "namespace:name" of their policy. An invalid marker is a problem of the result, and does not affect the others.
func Markers(file string, content []byte, images map[string]Ref) Result {
	e := &editing{file: file, result: Result{Content: content}}
	if !bytes.Contains(content, []byte(setterKey)) || !e.parse(content) {
		return e.result
	}
	byLine := e.text.scalars()
	for n := range e.text.lines {
		if line, start := e.text.line(n + 1); bytes.Contains(line, []byte(setterKey)) {
			e.applyMarker(n+1, line, start, byLine, images)
		}
	}
	return e.finish()
}

// scalars returns all scalars and aliases by line, in their order in the line.
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

// applyMarker sets the value that the marker in a line marks.
func (e *editing) applyMarker(n int, line []byte, start int, byLine map[int][]*yaml.Node, images map[string]Ref) {
	if trimmed := bytes.TrimLeft(line, " \t"); len(trimmed) > 0 && trimmed[0] == '#' {
		return // the line is commented out
	}
	nodes := byLine[n]
	if len(nodes) == 0 {
		return // a line of a multi-line scalar
	}
	node := nodes[len(nodes)-1]
	_, to, ok := e.text.span(node)
	if !ok && node.Kind != yaml.AliasNode {
		if !strings.Contains(node.Value, setterKey) {
			e.problem(n, "the marker follows a multi-line value, which cannot be set")
		}
		return
	}
	if node.Kind == yaml.AliasNode {
		to = start + bytes.IndexByte(line, '*') + 1 + len(node.Value)
	}
	comment, ok := commentAfter(e.text.content[to : start+len(line)])
	if !ok {
		return // inside a scalar
	}
	marker, err := parseMarker(comment)
	if err != nil {
		e.problem(n, "malformed marker: %s", err)
		return
	}
	e.addPolicy(marker.policy)
	image, known := images[marker.policy]
	switch {
	case !known:
		e.report(Problem{Line: n, Policy: marker.policy,
			Message: fmt.Sprintf("no image for policy %s of the marker", marker.policy)})
	case !image.Valid():
		e.problem(n, "the image of policy %s is not a valid reference", marker.policy)
	case node.Kind == yaml.AliasNode && e.valueAfter(node.Alias) != marker.value(image):
		e.problem(n, "the marker follows an alias: mark the value of anchor &%s instead", node.Value)
	case e.text.isKey(node):
		e.problem(n, "the marker follows a key: move it to the line of the value")
	default:
		e.set(node, marker.value(image), Change{Policy: marker.policy, Setter: marker.String()})
	}
}

// commentAfter returns the comment after a value. Between them may be only spaces and the end of flow collections.
func commentAfter(rest []byte) (string, bool) {
	before, comment, found := bytes.Cut(rest, []byte("#"))
	if !found || len(before) == 0 || !bytes.ContainsAny(before[len(before)-1:], " \t") ||
		len(bytes.Trim(before, " \t,]}")) > 0 {
		return "", false
	}
	return string(comment), true
}

// marker is the content of a marker comment.
type marker struct{ policy, field string } // an empty field means the full reference

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

// parseMarker parses the JSON in a comment. The comment may contain other text.
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
		return marker{}, fmt.Errorf("%q does not have the form namespace:name, namespace:name:tag, …:name or …:digest",
			oneLine(content[setterKey]))
	case len(parts) == 2:
		return marker{policy: content[setterKey]}, nil
	case parts[2] != "name" && parts[2] != "tag" && parts[2] != "digest":
		return marker{}, fmt.Errorf("%q is not a part of an image: use name, tag or digest", oneLine(parts[2]))
	}
	return marker{policy: parts[0] + ":" + parts[1], field: parts[2]}, nil
}

// isName reports whether s is a valid object name.
func isName(s string) bool {
	return s != "" && len(s) <= 253 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789.-") == "" && s[0] != '-' &&
		s[0] != '.'
}

// set replaces the value of a scalar, unless it has the value already.
func (e *editing) set(node *yaml.Node, want string, c Change) {
	from, to, ok := e.text.span(node)
	switch {
	case want == "":
		e.problem(node.Line, "the image of policy %s does not have this part (%s); for a digest set "+
			"spec.digestReflectionPolicy", c.Policy, c.Setter)
		return
	case node.Kind == yaml.AliasNode && e.valueAfter(node.Alias) == want:
		return
	case node.Kind == yaml.AliasNode:
		e.problem(node.Line, "the value is an alias, which others may share: bind or mark the value of anchor "+
			"&%s instead",
			node.Value)
		return
	case !ok:
		e.problem(node.Line, "the value is not a single-line scalar and cannot be set")
		return
	case len(node.Value) > maxValue:
		e.problem(node.Line, "the value is longer than %d bytes, not updated", maxValue)
		return
	case strings.Contains(node.Value, "{{") || strings.Contains(node.Value, "${"):
		e.problem(node.Line, "the value is a template, not updated")
		return
	case node.Value == want:
		return
	}
	for _, other := range e.edits {
		if other.node == node {
			if other.want != want {
				e.problem(node.Line, "set by two policies, %s and %s", other.change.Policy, c.Policy)
			}
			return
		}
	}
	raw := quote(node, want)
	if from == to && from > 0 && !bytes.ContainsAny(e.text.content[from-1:from], " \t") {
		raw = " " + raw
	}
	c.File, c.Line, c.Old, c.New = e.file, node.Line, node.Value, want
	c.Object, c.Container = e.text.place(node)
	e.edits = append(e.edits, splice{node: node, from: from, to: to, raw: raw, want: want, change: c})
}

// valueAfter returns the value that a scalar has after the edits.
func (e *editing) valueAfter(node *yaml.Node) string {
	for _, edit := range e.edits {
		if edit.node == node {
			return edit.want
		}
	}
	return node.Value
}

// place returns the object and the container that a value belongs to.
func (t *text) place(node *yaml.Node) (object Object, container string) {
	for n := t.parents[node]; n != nil; n = t.parents[n] {
		if n.Kind != yaml.MappingNode {
			continue
		}
		if isObject(n) {
			return identity(n).cut(), container
		}
		if list := t.parents[n]; container == "" && list != nil && list.Kind == yaml.SequenceNode &&
			isContainers(t.keyOf(list)) {
			container = excerpt.Bytes(at(n, "name"), maxName)
		}
	}
	return object, container
}

// cut returns the object with names that are not too long for an object cut.
func (o Object) cut() Object {
	return Object{APIVersion: excerpt.Bytes(o.APIVersion, maxName), Kind: excerpt.Bytes(o.Kind, maxName),
		Namespace: excerpt.Bytes(o.Namespace, maxName), Name: excerpt.Bytes(o.Name, maxName)}
}

// keyOf returns the key of a value in its map; empty if it is not in a map.
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
