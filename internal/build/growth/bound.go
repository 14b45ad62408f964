package growth

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
)

// Bound is the most that replacements and vars may add.
type Bound struct {
	Bytes  int64 // of texts
	Values int64
	// Work is the number of values that kustomize copies, or does as much work for.
	Work int64
	// Nested is the key of a field that replacements write as a whole, and whose text they parse to write a part of it:
	// what is parsed is not known before. It is empty if there is none.
	Nested string
}

const (
	selectWork = 25 // for an object that a replacement selects from
	textWork   = 2  // for a byte of a text that is parsed and written again
)

// plus returns the bound for two kustomizations together.
func (b Bound) plus(c Bound) Bound {
	return Bound{Bytes: sum(b.Bytes, c.Bytes), Values: sum(b.Values, c.Values), Work: sum(b.Work, c.Work),
		Nested: cmp.Or(b.Nested, c.Nested)}
}

// Bound returns the bound for what was added so far. An error is one of [Measure.Take].
func (m *Measure) Bound() (Bound, error) {
	if m.measured != nil || len(m.stack) == 0 {
		return *cmp.Or(m.measured, &Bound{}), m.err
	}
	s := m.simulate(0)
	s.expand()
	b := m.done.plus(s.bound)
	if m.measured = &b; m.err == nil {
		m.err = s.err
	}
	return b, m.err
}

// simulation runs replacements on what is known of fields.
type simulation struct {
	*Measure
	view     []*Kustomization // whose objects the replacements may select
	contents                  // the sums of all in view, without fields
	grown    map[id]growth
	created  map[string]bool // selectors and paths that were created
	parsed   map[id]size     // the largest text that was parsed and written again
	name     int64           // bytes of the longest name, which fields that refer to it have too
	bound    Bound
	err      error
}

// simulate runs the replacements of the kustomizations of the stack, from the last to one. Each selects from its own
// objects and those of the kustomizations that it lists; a component, from those of the one that lists it.
func (m *Measure) simulate(first int) *simulation {
	s := &simulation{Measure: m, contents: newContents(), grown: map[id]growth{}, created: map[string]bool{},
		parsed: map[id]size{}}
	for i := len(m.stack) - 1; i >= first; i-- {
		from := i
		for from > 0 && m.stack[from].isComponent {
			from--
		}
		s.lookAt(m.stack[from:])
		s.name = s.at(allKinds, "name", false).text
		for _, r := range m.stack[i].replacements {
			s.replace(r)
		}
	}
	return s
}

// replace simulates a replacement.
func (s *simulation) replace(r types.Replacement) {
	s.work(product(s.objects, selectWork))
	for _, t := range r.Targets {
		if t == nil || t.Select == nil {
			continue // kustomize refuses it
		}
		options := types.FieldOptions{}
		if t.Options != nil {
			options = *t.Options
		}
		paths := t.FieldPaths
		if len(paths) == 0 {
			paths = []string{types.DefaultReplacementFieldPath}
		}
		s.work(product(s.objects, selectWork))
		for _, p := range paths {
			to := target{selector: t.Select, kind: s.kindOf(t.Select.Kind), path: split(p)}
			to.objects = s.selected(to.kind, t.Select.Name)
			s.work(product(to.objects, selectWork))
			s.write(r, to, options)
		}
	}
}

// target is a path in the objects of a kind.
type target struct {
	selector *types.Selector
	kind     string
	path     []string
	objects  int64 // that the selector may select
}

// kindOf returns the kind of the objects that a selector selects, or allKinds if it may select others.
func (s *simulation) kindOf(selector string) string {
	if s.renamed || !plainKind.MatchString(selector) {
		return allKinds
	}
	return selector
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9-]+$`)

// selected returns the number of objects of a kind that a selector for a name may select.
func (s *simulation) selected(kind, name string) int64 {
	number := s.objects
	if kind != allKinds {
		number = s.numberOf(kind, "")
	}
	if s.renamed || s.affixes > 0 || s.isWritten("name", anyLevel) || !plainName.MatchString(name) {
		return number
	}
	return min(number, s.numberOf("", name))
}

// source returns the largest value of the source of a replacement, while a number of fields become the value. Kustomize
// reads the value again for each of them, and it grows with each that it contains.
func (s *simulation) source(r types.Replacement, to target, delimited bool, number int64) growth {
	if r.SourceValue != nil {
		return growth{text: int64(len(*r.SourceValue)), refers: strings.Contains(*r.SourceValue, "$(")}
	}
	if r.Source == nil {
		return growth{} // kustomize refuses it
	}
	kind, from := s.kindOf(r.Source.Kind), split(cmp.Or(r.Source.FieldPath, types.DefaultReplacementFieldPath))
	value := s.look(kind, from)
	if o := r.Source.Options; o != nil && o.Delimiter != "" {
		s.split(value.text)
		return growth{text: value.text, refers: value.refers}
	}
	if kind != to.kind && kind != allKinds && to.kind != allKinds {
		return value
	}
	doublings := int64(0)
	switch isPart := contains(from, to.path); {
	case isPart && several(to.path):
		doublings = min(number, 50)
	case isPart, delimited: // a source that is a target grows before others are written
		doublings = 1
	}
	value.text, value.tree = product(value.text, 1<<doublings), value.tree.times(1<<doublings)
	return value
}

// write simulates writing the value of a replacement to the fields of a target.
func (s *simulation) write(r types.Replacement, to target, options types.FieldOptions) {
	number := s.matches(to, options.Create)
	value := s.source(r, to, options.Delimiter != "", number)
	if options.Delimiter != "" {
		old := s.look(to.kind, to.path)
		s.split(old.text)
		value = growth{text: sum(old.text, value.text+int64(len(options.Delimiter))),
			refers: value.refers || old.refers || strings.ContainsAny(options.Delimiter, "$(")}
	}
	each := larger(size{value.text, 1}, value.tree)
	if options.Create {
		each = each.plus(s.create(to))
	} else if value.tree.values == 0 {
		each.values = 0 // the value replaces one
	}
	s.add(each.times(number))
	s.work(product(number, max(1, each.values)))
	if value.refers {
		s.refers = sum(s.refers, product(number, each.bytes))
	}
	perObject := int64(1)
	if several(to.path) {
		perObject = number
	}
	if value.tree.values > 0 {
		s.copied = sum(s.copied, product(number, each.values))
	}
	s.grow(to, value, each.times(perObject))
	s.parse(to, each)
}

// create returns what the path of a target adds where it does not exist yet.
func (s *simulation) create(to target) (added size) {
	key := fmt.Sprint(to.selector, to.path)
	if s.created[key] {
		return size{}
	}
	s.created[key] = true
	for _, part := range to.path {
		added.bytes += int64(len(part))
		if added.values += 2; !isKey(part) { // a key and its value; an entry of a list has those in it
			added.values += 2
		}
	}
	return added
}

// grow makes the fields of a target as large as a value, and the maps and lists around them by more.
func (s *simulation) grow(to target, value growth, more size) {
	path, last := to.path, lastKey(to.path)
	s.largest = s.largest.and(growth{text: value.text, tree: more})
	for i, part := range path {
		if part == "*" {
			if i >= last {
				s.any.text, s.any.refers = max(s.any.text, value.text), s.any.refers || value.refers
			}
			s.any.tree = s.any.tree.plus(more)
		}
		if i >= last {
			s.written.add(part, len(path)-1-i)
		}
		for _, id := range written(to.kind, part) {
			g := s.grown[id]
			if i >= last {
				g.text, g.refers = max(g.text, value.text), g.refers || value.refers
			}
			if i < len(path)-1 || value.tree.values > 0 {
				g.tree = g.tree.plus(more)
			}
			s.grown[id] = g
		}
	}
}

// written returns the ids of the fields that are written in objects of a kind.
func written(kind, key string) [2]id {
	if kind == allKinds {
		kind = anyKind
	}
	return [2]id{{allKinds, key}, {kind, key}}
}

// read returns the ids of all fields in objects of a kind.
func read(kind, key string) []id {
	if kind == allKinds {
		return []id{{allKinds, key}}
	}
	return []id{{kind, key}, {anyKind, key}}
}

// look returns the largest value that a path in objects of a kind may lead to.
func (s *simulation) look(kind string, path []string) growth {
	var found growth
	before := s.before()
	for i := max(0, lastKey(path)); i < len(path); i++ {
		g := s.at(kind, path[i], i < len(path)-1)
		found.text, found.tree = max(found.text, g.text), larger(found.tree, g.tree)
		found.refers = found.refers || g.refers || before.any.refers
	}
	if s.moved {
		found.text, found.tree = max(found.text, before.largest.text), larger(found.tree, before.largest.tree)
		found.refers = true
	}
	found.text = sum(max(found.text, s.name, s.floor, before.any.text), s.affixes)
	return found
}

// at returns the largest value under a key, or below it.
func (s *simulation) at(kind, key string, below bool) growth {
	var found growth
	for _, id := range read(kind, key) {
		g, f := s.grown[id], s.find(id)
		if f.tree.values > 0 {
			g.refers = g.refers || s.references+s.sharedReferences > 0 // somewhere below
		}
		if g.text, g.refers = max(g.text, f.text), g.refers || f.refers; below {
			g.text = max(g.text, f.below)
		}
		found.text, found.refers = max(found.text, g.text), found.refers || g.refers
		found.tree = found.tree.plus(g.tree).plus(f.tree)
	}
	if found.tree.values > 0 {
		found.tree = found.tree.plus(s.shared).plus(s.before().any.tree)
	}
	return found
}

// occurring returns how often a key occurs in the objects of a target, and the number of entries of its maps and lists.
func (s *simulation) occurring(to target, key string) (count, children int64) {
	for _, id := range read(to.kind, key) {
		f := s.find(id)
		count = sum(count, f.count.in(to.objects, s.objects))
		children = sum(children, f.children.in(to.objects, s.objects))
	}
	return count, children
}

// matches returns the number of fields that a target may have.
func (s *simulation) matches(to target, create bool) int64 {
	if !several(to.path) && create {
		return to.objects
	}
	last := lastKey(to.path)
	number := s.before().copied
	for _, part := range to.path[max(0, last):] {
		count, children := s.occurring(to, part)
		if number = sum(number, count); last < len(to.path)-1 {
			number = sum(number, children)
		}
	}
	switch {
	case last < 0:
		number = sum(number, s.entries)
	case create: // in each entry of each list
		number = sum(number, sum(to.objects, s.within(to)))
	case !several(to.path):
		number = min(number, to.objects)
	}
	return number
}

// within returns the number of entries of all maps and lists that parts of a path without a key may lead to.
func (s *simulation) within(to target) int64 {
	total := int64(0)
	for i, part := range to.path {
		if isKey(part) {
			continue
		}
		if i == 0 || !isKey(to.path[i-1]) {
			return s.entries
		}
		_, children := s.occurring(to, to.path[i-1])
		total = sum(total, children)
	}
	return total
}

// split adds the memory for splitting a text: a part for each byte takes 16 bytes, and a build takes 8 for each here.
func (s *simulation) split(text int64) { s.add(size{bytes: 2 * text}) }

func (s *simulation) add(more size) {
	s.bound.Bytes = sum(s.bound.Bytes, more.bytes)
	s.bound.Values = sum(s.bound.Values, more.values)
}

func (s *simulation) work(n int64) { s.bound.Work = sum(s.bound.Work, n) }

// expand adds what vars add: each reference to one may become the longest value.
func (s *simulation) expand() {
	longest := int64(0)
	for _, v := range s.vars {
		longest = max(longest, s.look(allKinds, split(v)).text)
		if !strings.ContainsAny(v, `[\`) {
			continue
		}
		// kustomize splits such a path in another way
		for _, part := range strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(`.[]"'\`, r) }) {
			longest = max(longest, s.at(allKinds, part, true).text)
		}
	}
	if longest == 0 {
		return
	}
	references := sum(s.references, product(s.objects, s.sharedReferences))
	references = sum(references, s.before().refers/int64(len("$()")))
	s.add(size{bytes: product(references, longest)})
}
