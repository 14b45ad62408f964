package growth

import (
	yaml "go.yaml.in/yaml/v3"
)

// Kustomize parses a text that a path leads into, such as a configuration in a ConfigMap, sets the field, and writes
// the text again.

const (
	maxLevels   = 100 // of a text that is parsed: indentation grows with each
	indentation = 4   // bytes for a level
	escaped     = 6   // bytes that a byte may become in JSON
	nodeBytes   = indentation * maxLevels
)

// parse adds the work and the growth of texts that the path of a target leads into.
func (s *simulation) parse(to target, each size) {
	for i, part := range to.path[:max(0, len(to.path)-1)] {
		levels := anyLevel
		if i >= lastKey(to.path) { // only entries of lists follow, and the last of them is not parsed but written
			levels = len(to.path) - 1 - i
		}
		for _, id := range read(to.kind, part) {
			if f := s.find(id); f.text > 0 {
				if s.isWritten(part, levels) {
					s.bound.Nested = part
				}
				s.parseField(to, id, f, each)
			}
		}
	}
}

func (s *simulation) parseField(to target, id id, f field, each size) {
	text, known := s.parsed[id]
	if !known {
		for _, k := range s.view {
			if f := k.fields[id]; f != nil {
				text = larger(text, s.again(f))
			}
		}
	}
	if text.values == 0 {
		return
	}
	number := int64(1)
	if several(to.path) {
		number = text.values
	}
	text = text.plus(size{each.bytes*escaped + (each.values+1)*nodeBytes, each.values + 1}.times(number))
	s.parsed[id] = text
	texts := f.count.in(to.objects, s.objects)
	s.add(text.times(texts))
	s.work(product(product(text.bytes, textWork), texts))
	s.refers = sum(s.refers, product(text.bytes, texts)) // escapes in it may become references
	for _, id := range written(id.kind, id.key) {
		g := s.grown[id]
		g.text, g.refers = max(g.text, text.bytes), true
		s.grown[id] = g
	}
}

// again returns the size of the largest map or list that the texts of a field hold, after it is parsed and written
// again. It is zero if they hold none.
func (s *simulation) again(f *field) size {
	for ; f.parsed < len(f.texts) && s.err == nil; f.parsed++ {
		text := []byte(f.texts[f.parsed])
		if s.Take != nil {
			if s.err = s.Take(text); s.err != nil {
				break
			}
		}
		var doc yaml.Node
		if yaml.Unmarshal(text, &doc) != nil {
			continue // kustomize does not go into it
		}
		switch values, levels := measure(&doc); {
		case values < 0 || levels > maxLevels:
			f.again = size{most, most}
		case levels > 2: // the document is one, and a scalar is one
			f.again = larger(f.again, size{int64(len(text))*escaped + values*levels*indentation, values})
		}
	}
	return f.again
}

// measure returns the number of values and levels of a value. The number is negative if it has aliases.
func measure(n *yaml.Node) (values, levels int64) {
	if n.Kind == yaml.AliasNode {
		return -1, 0
	}
	values = 1
	for _, c := range n.Content {
		below, deep := measure(c)
		if below < 0 {
			return -1, 0
		}
		values, levels = values+below, max(levels, deep)
	}
	return values, levels + 1
}
