package yamlsize

import (
	"errors"
	"fmt"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

const (
	fewKeys    = 16 // of a map, up to which comparing all takes no longer than remembering them
	shownPairs = 3  // of equal keys in an error

	maxComparisons = 500_000_000 // of keys by the library: about a second, for a map of 30,000 keys
)

// key is what the library compares keys by: all keys that are lists or maps are equal for it.
type key struct {
	kind  yaml.Kind
	value string
}

// EqualKeys returns how many pairs of equal keys a map has. The library makes a line of an error of each.
func EqualKeys(n *yaml.Node) int64 {
	pairs := int64(0)
	eachEqual(n, func(_ *yaml.Node, before int, _ *yaml.Node) { pairs += int64(before) })
	return pairs
}

// eachEqual calls visit with each key of a map that is equal to others before it, with their number and the first of
// them. A node that is not a map has no keys.
func eachEqual(n *yaml.Node, visit func(again *yaml.Node, before int, first *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		return
	}
	if len(n.Content) <= 2*fewKeys && !hasEqual(n) {
		return
	}
	type found struct {
		first *yaml.Node
		times int
	}
	seen := make(map[key]*found, len(n.Content)/2)
	for i := 0; i < len(n.Content); i += 2 {
		k := key{n.Content[i].Kind, n.Content[i].Value}
		f := seen[k]
		if f == nil {
			seen[k] = &found{n.Content[i], 1}
			continue
		}
		visit(n.Content[i], f.times, f.first)
		f.times++
	}
}

// hasEqual compares all keys of a map with one another.
func hasEqual(n *yaml.Node) bool {
	for i := 2; i < len(n.Content); i += 2 {
		for j := 0; j < i; j += 2 {
			if n.Content[j].Kind == n.Content[i].Kind && n.Content[j].Value == n.Content[i].Value {
				return true
			}
		}
	}
	return false
}

// CheckKeys returns an error if a map in a document has equal keys, some of which it names, or if comparing all keys of
// a map, as the library does, takes long.
func CheckKeys(document *yaml.Node) error {
	var said []string
	more, comparisons := 0, int64(0)
	var walk func(*yaml.Node)
	walk = func(n *yaml.Node) {
		eachEqual(n, func(again *yaml.Node, _ int, first *yaml.Node) {
			if len(said) == shownPairs {
				more++
				return
			}
			said = append(said, fmt.Sprintf("line %d: mapping key %.100q already defined at line %d", again.Line,
				again.Value, first.Line))
		})
		if keys := int64(len(n.Content)) / 2; n.Kind == yaml.MappingNode {
			comparisons += keys * (keys - 1) / 2
		}
		for _, c := range n.Content {
			walk(c)
		}
	}
	walk(document)
	if comparisons > maxComparisons {
		return errors.New("its maps have too many keys; split it")
	}
	if more > 0 {
		said = append(said, fmt.Sprintf("and %d more", more))
	}
	if len(said) > 0 {
		return errors.New(strings.Join(said, "; "))
	}
	return nil
}

// Unmarshal is [yaml.Unmarshal] for a text that is not trusted, and whose size and aliases are bounded elsewhere.
func Unmarshal(text []byte, into any) error {
	if err := CheckDirectives(text); err != nil {
		return err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil || document.IsZero() {
		return err
	}
	return Decode(&document, into)
}

// Decode is [yaml.Node.Decode] for a document that is not trusted.
func Decode(document *yaml.Node, into any) error {
	if err := CheckKeys(document); err != nil {
		return err
	}
	return document.Decode(into)
}
