// Package growth bounds what the replacements and vars of kustomizations add to objects, before kustomize runs them. A
// replacement may copy a field into itself, or a long text into many fields, so that a few lines make gigabytes.
//
// Fields are known by the kind of their object and their key, wherever they are: a field 'host' of an Ingress may be as
// long as the longest field 'host' of an Ingress. So a bound is never less than what kustomize makes of the input, and
// may be more.
package growth

import (
	"maps"
	"regexp"
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

// field is what is known of the values under a key. Elements of a list are under the key of the list too.
type field struct {
	text     int64 // bytes of the longest text
	below    int64 // bytes of the longest text at any depth
	tree     size  // of the largest map or list
	count    many  // of times that the key occurs
	children many  // of entries of all maps and lists
	refers   bool  // whether a text may refer to vars
	texts    []string
	parsed   int  // of the texts
	again    size // of the largest of those texts after it is parsed and written again
}

// many is a number of values.
type many struct {
	total  int64 // in all objects
	shared int64 // in each object besides, at most

	document int   // the one of the last number
	latest   int64 // in this document
	most     int64 // in one document
}

// add adds a number of values of a document.
func (n *many) add(more int64, document int, shared bool) {
	if shared {
		n.shared = sum(n.shared, more)
		return
	}
	if n.document != document {
		n.document, n.latest = document, 0
	}
	n.latest += more
	n.total, n.most = sum(n.total, more), max(n.most, n.latest)
}

// in returns the largest number in some of all objects.
func (n many) in(some, all int64) int64 {
	return sum(min(n.total, product(n.most, some)), product(n.shared, min(some, all)))
}

// Measure collects what kustomize reads.
type Measure struct {
	// Take takes the memory for parsing a text, unless it is nil.
	Take func(text []byte) error

	fields  map[id]*field
	objects int64
	kinds   map[string]int64 // objects of each kind
	shared  size             // of all patches and settings: any map may have what they add
	floor   int64            // bytes of the longest text that settings may write into any field
	affixes int64            // bytes of all prefixes and suffixes
	moved   bool             // whether a patch moves values from one field to another
	names   map[string]int64 // objects of each name
	renamed bool             // whether patches may change kinds and names of objects

	references       int64 // '$(' in all objects
	sharedReferences int64 // '$(' in patches and settings, which may be part of each object

	files      [][]types.Replacement // of each kustomization, in the order in which they are read
	components int                   // that kustomizations list
	vars       []string              // paths of fields

	kind     string // of the document that is added
	sharing  bool   // whether it is shared
	document int    // its number
	measured *Bound // nil after a change
}

// New returns a measure of nothing.
func New() *Measure {
	return &Measure{fields: map[id]*field{}, kinds: map[string]int64{}, names: map[string]int64{}, floor: smallText}
}

// smallText is the length in bytes of texts that kustomize and Sluice themselves write, such as names of files in
// annotations.
const smallText = 256

// Needed reports whether anything that was collected can grow. If not, documents need not be added.
func (m *Measure) Needed() bool { return len(m.files) > 0 || len(m.vars) > 0 }

// Clone returns a copy. What is added to it is not added to m.
func (m *Measure) Clone() *Measure {
	c := *m
	c.fields = make(map[id]*field, len(m.fields))
	for key, f := range m.fields {
		copied := *f
		c.fields[key] = &copied
	}
	c.kinds, c.names = maps.Clone(m.kinds), maps.Clone(m.names)
	c.files, c.vars = m.files[:len(m.files):len(m.files)], m.vars[:len(m.vars):len(m.vars)]
	return &c
}

// Kustomization adds the replacements and vars of a kustomization, with those of its files and transformers. A
// kustomization must be added before those that it lists.
func (m *Measure) Kustomization(replacements []types.Replacement, vars []types.Var, components int) {
	m.measured = nil
	if len(replacements) > 0 {
		m.files = append(m.files, replacements)
	}
	for _, v := range vars {
		v.Defaulting()
		m.vars = append(m.vars, v.FieldRef.FieldPath)
	}
	m.components += components
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
	m.objects++
	m.kinds[kind]++
	m.names[name]++
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
	before := m.references
	if m.sharing, m.kind = shared, anyKind; !shared {
		m.kind = kindOf(doc)
	}
	total, _ := m.walk("", doc)
	if shared {
		m.shared = m.shared.plus(total)
		m.sharedReferences += m.references - before
		m.references = before
	}
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
	var found [2]*field
	for i, kind := range [2]string{allKinds, m.kind} {
		f := m.fields[id{kind, key}]
		if f == nil {
			f = &field{}
			m.fields[id{kind, key}] = f
		}
		found[i] = f
	}
	return found
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
			m.operation(c)
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
	m.references += int64(references)
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
		m.objects++
		m.kinds[value]++
	case "name": // of an object, or of something in it
		m.names[value]++
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
