package growth

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

// merge adds the values of other objects.
func (f *field) merge(g *field) {
	f.measure(g)
	f.texts = append(f.texts[:len(f.texts):len(f.texts)], g.texts...)
}

// measure adds what is known of the values of other objects, but not their texts.
func (f *field) measure(g *field) {
	f.text, f.below, f.tree = max(f.text, g.text), max(f.below, g.below), larger(f.tree, g.tree)
	f.count, f.children = f.count.and(g.count), f.children.and(g.children)
	f.refers, f.again = f.refers || g.refers, larger(f.again, g.again)
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

// and returns the numbers of other objects too.
func (n many) and(m many) many {
	return many{total: sum(n.total, m.total), shared: sum(n.shared, m.shared), most: max(n.most, m.most)}
}

// in returns the largest number in some of all objects.
func (n many) in(some, all int64) int64 {
	return sum(min(n.total, product(n.most, some)), product(n.shared, min(some, all)))
}

// contents are the objects of a kustomization, and what replacements made of them.
type contents struct {
	fields  map[id]*field
	objects int64
	kinds   map[string]int64 // objects of each kind
	names   map[string]int64 // objects of each name
	shared  size             // of all patches and settings: any map may have what they add
	largest growth           // of all fields
	entries int64            // of all maps and lists

	references       int64 // '$(' in all objects
	sharedReferences int64 // '$(' in patches and settings, which may be part of each object

	any     growth // of fields whose keys are not known
	copied  int64  // values that were copied as part of maps and lists, and may have any key
	refers  int64  // bytes that were written and may refer to vars
	written writes // fields that were written as a whole
}

// writes are the fields that were written as a whole: their keys, with the least number of levels of lists between the
// field of the key and the value.
type writes map[string]int

func (w writes) add(key string, levels int) {
	if before, known := w[key]; !known || levels < before {
		w[key] = levels
	}
}

func (w writes) merge(others writes) {
	for key, levels := range others {
		w.add(key, levels)
	}
}

// growth is what replacements made of the fields of a key.
type growth struct {
	text   int64 // bytes of the longest text
	tree   size  // that was added to the largest map or list
	refers bool  // whether a text may refer to vars
}

// and returns the larger text, and both trees together.
func (g growth) and(h growth) growth {
	return growth{text: max(g.text, h.text), tree: g.tree.plus(h.tree), refers: g.refers || h.refers}
}

func newContents() contents {
	return contents{fields: map[id]*field{}, kinds: map[string]int64{}, names: map[string]int64{},
		written: writes{}}
}

func (c *contents) clone() contents {
	copied := newContents()
	copied.merge(c)
	return copied
}

// field returns what is known of a field.
func (c *contents) field(id id) *field {
	f := c.fields[id]
	if f == nil {
		f = &field{}
		c.fields[id] = f
	}
	return f
}

// merge adds the objects of a kustomization that this one lists.
func (c *contents) merge(listed *contents) {
	for id, f := range listed.fields {
		c.field(id).merge(f)
	}
	c.objects = sum(c.objects, listed.objects)
	for kind, n := range listed.kinds {
		c.kinds[kind] += n
	}
	for name, n := range listed.names {
		c.names[name] += n
	}
	c.shared = c.shared.plus(listed.shared)
	c.largest = growth{text: max(c.largest.text, listed.largest.text),
		tree: larger(c.largest.tree, listed.largest.tree)}
	c.entries = sum(c.entries, listed.entries)
	c.references = sum(c.references, listed.references)
	c.sharedReferences = sum(c.sharedReferences, listed.sharedReferences)
	c.any, c.copied = c.any.and(listed.any), sum(c.copied, listed.copied)
	c.refers = sum(c.refers, listed.refers)
	c.written.merge(listed.written)
}

// grow adds what replacements made of the objects.
func (c *contents) grow(s *simulation) {
	for id, g := range s.grown {
		f := c.field(id)
		f.text, f.tree, f.refers = max(f.text, g.text), f.tree.plus(g.tree), f.refers || g.refers
	}
	for id, again := range s.parsed {
		c.field(id).again = larger(c.field(id).again, again)
	}
	c.largest = c.largest.and(s.largest)
	c.any, c.copied, c.refers = c.any.and(s.any), sum(c.copied, s.copied), sum(c.refers, s.refers)
	c.written.merge(s.written)
}
