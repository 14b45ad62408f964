// Package growth bounds what the replacements and vars of kustomizations add to objects, before kustomize runs them. A
// replacement may copy a field into itself, or a long text into many fields, so that a few lines make gigabytes.
//
// Fields are known by the kind of their object and their key, wherever they are: a field 'host' of an Ingress may be as
// long as the longest field 'host' of an Ingress. So a bound is never less than what kustomize makes of the input, and
// may be more.
package growth

import (
	"regexp"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"sigs.k8s.io/kustomize/api/types"
)

// most is a size that no build can have. Larger sizes are cut to it, so that sums of sizes never overflow.
const most = int64(1) << 50

// size is the size of a value.
type size struct {
	bytes, values int64
}

func (s size) plus(t size) size { return size{sum(s.bytes, t.bytes), sum(s.values, t.values)} }

func (s size) times(n int64) size { return size{product(s.bytes, n), product(s.values, n)} }

func larger(s, t size) size { return size{max(s.bytes, t.bytes), max(s.values, t.values)} }

func sum(a, b int64) int64 { return min(a+b, most) }

func product(a, b int64) int64 {
	if a > 0 && b > most/a {
		return most
	}
	return a * b
}

// id names fields: those with a key in objects of a kind.
type id struct {
	kind, key string
}

const (
	allKinds = ""  // the fields of a key in all objects
	anyKind  = "*" // those in objects of which the kind is not known, such as in patches
)

// Measure collects what kustomize reads.
type Measure struct {
	// Take takes the memory for parsing a text, unless it is nil.
	Take func(text []byte) error

	floor   int64 // bytes of the longest text that settings may write into any field
	affixes int64 // bytes of all prefixes and suffixes
	moved   bool  // whether a patch moves values from one field to another
	renamed bool  // whether patches may change kinds and names of objects

	stack []*Kustomization // the root, and those below it that list the one that was read last
	done  Bound            // of those that were read completely
	grows bool             // whether there are replacements or vars
	vars  []string         // paths of fields

	into     *contents // of the kustomization that the document belongs to
	kind     string    // of the document
	sharing  bool      // whether it is shared
	document int       // its number
	measured *Bound    // nil after a change
	err      error     // of Take
}

// New returns a measure of nothing.
func New() *Measure { return &Measure{floor: smallText} }

// smallText is the length in bytes of texts that kustomize and Sluice themselves write, such as names of files in
// annotations.
const smallText = 256

// Needed reports whether anything that was collected can grow. If not, documents need not be added.
func (m *Measure) Needed() bool { return m.grows }

// Clone returns a copy of a measure with at most one kustomization. What is added to the copy is not added to m.
func (m *Measure) Clone() *Measure {
	c := *m
	c.vars, c.stack = slices.Clone(m.vars), nil
	for _, k := range m.stack {
		copied := *k
		copied.contents, copied.replacements = k.clone(), slices.Clone(k.replacements)
		c.stack = append(c.stack, &copied)
	}
	return &c
}

// Kustomization is a kustomization that was read, with all that it lists.
type Kustomization struct {
	contents
	lists        map[string]bool // directories of others, which kustomize reads and builds before it
	isComponent  bool            // whether its replacements are for the objects of the one that lists it
	replacements []types.Replacement
}

// Kustomization adds a kustomization in dir that lists those of other directories, with its vars. Kustomize reads a
// kustomization, then each that it lists with all that this one lists in turn, and then runs its replacements.
func (m *Measure) Kustomization(dir string, lists []string, isComponent bool, vars []types.Var) {
	m.measured = nil
	for i := len(m.stack) - 1; i >= 0; i-- {
		if m.stack[i].lists[dir] {
			m.finish(i + 1)
			break
		}
	}
	k := &Kustomization{contents: newContents(), lists: map[string]bool{}, isComponent: isComponent}
	for _, l := range lists {
		k.lists[l] = true
	}
	m.stack = append(m.stack, k)
	for _, v := range vars {
		v.Defaulting()
		m.vars = append(m.vars, v.FieldRef.FieldPath)
		m.grows = true
	}
}

// finish ends the kustomizations of the stack from an index on: their objects, with what their replacements add, become
// those of the ones that list them.
func (m *Measure) finish(from int) {
	for len(m.stack) > from {
		last := len(m.stack) - 1
		k := m.stack[last]
		s := m.simulate(last)
		if m.err == nil {
			m.err = s.err
		}
		m.done = m.done.plus(s.bound)
		m.stack = m.stack[:last]
		if last > 0 {
			m.stack[last-1].merge(&k.contents)
			m.stack[last-1].grow(s)
		}
	}
}

// Current returns the kustomization that was added last.
func (m *Measure) Current() *Kustomization {
	if len(m.stack) == 0 {
		return nil
	}
	return m.stack[len(m.stack)-1]
}

// Enter makes what is added next a part of a kustomization, or of the one that was added last if it is nil or was read
// completely.
func (m *Measure) Enter(k *Kustomization) {
	if k == nil || !slices.Contains(m.stack, k) {
		k = m.Current()
	}
	m.into = &k.contents
}

// Replacements adds replacements of the kustomization that was added last.
func (m *Measure) Replacements(replacements []types.Replacement) {
	if len(replacements) == 0 {
		return
	}
	m.measured, m.grows = nil, true
	k := m.Current()
	k.replacements = append(k.replacements[:len(k.replacements):len(k.replacements)], replacements...)
}

// Setting adds a text that settings write: into any field as a whole, or as a prefix or a suffix.
func (m *Measure) Setting(text string, affix bool) {
	m.measured = nil
	m.floor = max(m.floor, int64(len(text)))
	if affix {
		m.affixes = sum(m.affixes, int64(len(text)))
	}
}

// Generated adds an object that a generator makes.
func (m *Measure) Generated(kind, name string) {
	m.measured = nil
	m.into.objects++
	m.into.kinds[kind]++
	m.into.names[name]++
}

// Data adds an entry of a generated object. A Secret has its texts in Base64.
func (m *Measure) Data(key, value string) {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: value}
	m.add(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: key}, n}}, true)
	for _, f := range m.under(key) {
		f.text = max(f.text, int64(len(value))*3/2+4)
	}
}

// Object adds a document with an object. Its aliases must be bounded.
func (m *Measure) Object(doc *yaml.Node) { m.add(doc, false) }

// Patch adds a document that kustomize merges into objects: a patch, or settings. Its aliases must be bounded.
func (m *Measure) Patch(doc *yaml.Node) { m.add(doc, true) }

func (m *Measure) add(doc *yaml.Node, shared bool) {
	m.measured = nil
	m.document++
	before := m.into.references
	if m.sharing, m.kind = shared, anyKind; !shared {
		m.kind = kindOf(doc)
	}
	total, longest := m.walk("", doc)
	if doc.Kind == yaml.SequenceNode {
		for _, c := range doc.Content {
			m.operation(c)
		}
	}
	if shared {
		m.into.shared = m.into.shared.plus(total)
		m.into.sharedReferences += m.into.references - before
		m.into.references = before
	}
	m.into.largest.text = max(m.into.largest.text, longest)
	m.into.largest.tree = larger(m.into.largest.tree, total)
}

func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// kindOf returns the kind of the object in a document, if it is one object.
func kindOf(doc *yaml.Node) string {
	if doc.Kind != yaml.MappingNode {
		return anyKind
	}
	kind := ""
	for i := 0; i+1 < len(doc.Content); i += 2 {
		if doc.Content[i].Value == "kind" {
			kind = resolved(doc.Content[i+1]).Value
		}
	}
	if !plainKind.MatchString(kind) || strings.HasSuffix(kind, "List") {
		return anyKind
	}
	return kind
}

var plainKind = regexp.MustCompile(`^[A-Za-z0-9]+$`)

// under returns the fields of a key that a value of the document belongs to.
func (m *Measure) under(key string) [2]*field {
	return [2]*field{m.into.field(id{allKinds, key}), m.into.field(id{m.kind, key})}
}

// walk adds a value under a key. It returns its size and the bytes of its longest text.
func (m *Measure) walk(key string, n *yaml.Node) (total size, longest int64) {
	n = resolved(n)
	total.values = 1
	switch n.Kind {
	case yaml.ScalarNode:
		total.bytes, longest = int64(len(n.Value)), int64(len(n.Value))
		m.text(key, n.Value)
	case yaml.DocumentNode, yaml.SequenceNode:
		for _, c := range n.Content {
			below, text := m.walk(key, c)
			total, longest = total.plus(below), max(longest, text)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i].Value
			if name == "<<" {
				name = key
			}
			below, text := m.walk(name, n.Content[i+1])
			m.occurs(name)
			total = total.plus(below).plus(size{int64(len(name)), 1})
			longest = max(longest, text)
			m.note(name, resolved(n.Content[i+1]).Value)
		}
	}
	m.into.entries = sum(m.into.entries, int64(len(n.Content)))
	for _, f := range m.under(key) {
		if n.Kind != yaml.ScalarNode {
			f.tree = larger(f.tree, total)
			f.children.add(int64(len(n.Content)), m.document, m.sharing)
		}
		f.below = max(f.below, longest)
	}
	return total, longest
}

// text adds a text under a key.
func (m *Measure) text(key, text string) {
	references := strings.Count(text, "$(")
	m.into.references += int64(references)
	for _, f := range m.under(key) {
		f.text = max(f.text, int64(len(text)))
		f.texts = append(f.texts, text)
		f.refers = f.refers || references > 0
	}
}

// occurs counts a key.
func (m *Measure) occurs(key string) {
	for _, f := range m.under(key) {
		f.count.add(1, m.document, m.sharing)
	}
}

// note records what a field says about the objects.
func (m *Measure) note(key, value string) {
	switch key {
	case "kind":
		m.into.objects++
		m.into.kinds[value]++
	case "name": // of an object, or of something in it
		m.into.names[value]++
	case "allowKindChange", "allowNameChange":
		m.renamed = true
	}
}

// operation adds an operation of a JSON patch, whose path names the key of its value.
func (m *Measure) operation(n *yaml.Node) {
	if n = resolved(n); n.Kind != yaml.MappingNode {
		return
	}
	var path string
	var value *yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch n.Content[i].Value {
		case "path":
			path = resolved(n.Content[i+1]).Value
		case "value":
			value = n.Content[i+1]
		case "from":
			m.moved = true
		}
	}
	if path == "/kind" || strings.HasPrefix(path, "/metadata") {
		m.renamed = true
	}
	if i := strings.LastIndexByte(path, '/'); i >= 0 && value != nil {
		parts := strings.Split(path, "/")
		for _, part := range parts[max(0, len(parts)-2):] { // the last may be an index of a list
			key := strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
			m.walk(key, value)
			m.occurs(key)
		}
	}
}
