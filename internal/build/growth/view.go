package growth

import (
	"math"
	"slices"
)

// lookAt makes the objects of kustomizations those that replacements may select.
func (s *simulation) lookAt(view []*Kustomization) {
	s.view = view
	s.objects, s.shared, s.entries, s.references, s.sharedReferences = 0, size{}, 0, 0, 0
	for _, k := range view {
		s.objects, s.shared, s.entries = sum(s.objects, k.objects), s.shared.plus(k.shared), sum(s.entries, k.entries)
		s.references = sum(s.references, k.references)
		s.sharedReferences = sum(s.sharedReferences, k.sharedReferences)
	}
}

// before returns what earlier replacements made of the objects in view.
func (s *simulation) before() (all contents) {
	all = contents{any: s.any, copied: s.copied, refers: s.refers, largest: s.largest}
	for _, k := range s.view {
		all.any, all.copied = all.any.and(k.any), sum(all.copied, k.copied)
		all.refers = sum(all.refers, k.refers)
		all.largest.text = max(all.largest.text, k.largest.text)
		all.largest.tree = all.largest.tree.plus(k.largest.tree)
	}
	return all
}

// find returns what is known of a field of the objects in view, without its texts.
func (s *simulation) find(id id) (found field) {
	for _, k := range s.view {
		if f := k.fields[id]; f != nil {
			found.measure(f)
		}
	}
	return found
}

// numberOf returns the number of objects of a kind, or with a name if kind is empty.
func (s *simulation) numberOf(kind, name string) int64 {
	number := int64(0)
	for _, k := range s.view {
		if kind != "" {
			number = sum(number, k.kinds[kind])
		} else {
			number = sum(number, k.names[name])
		}
	}
	return number
}

// anyLevel is more levels of lists than a path has.
const anyLevel = math.MaxInt

// isWritten reports whether values at less than a number of levels of lists below fields of a key were written as a
// whole.
func (s *simulation) isWritten(key string, levels int) bool {
	above := func(w writes) bool {
		at, known := w[key]
		return known && at < levels
	}
	return above(s.written) || slices.ContainsFunc(s.view, func(k *Kustomization) bool { return above(k.written) })
}
