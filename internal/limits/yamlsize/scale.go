package yamlsize

import (
	"fmt"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// Weight is the size of a value after its aliases are replaced by what they stand for.
type Weight struct {
	Values, Text           int // values, and bytes of texts
	AddedValues, AddedText int // by aliases

	// What [Scale.Each] has counted.
	Levels, Lists int // of lists and maps, and of lists of objects, in each other
	Work          int
	Pairs         int64 // of equal keys
}

// Add adds the weight of a value below.
func (w *Weight) Add(below Weight) {
	w.Values += below.Values
	w.Text += below.Text
	w.AddedValues += below.AddedValues
	w.AddedText += below.AddedText
	w.Work += below.Work
	w.Pairs += below.Pairs
	w.Levels, w.Lists = max(w.Levels, below.Levels), max(w.Lists, below.Lists)
}

// Scale weighs documents.
type Scale struct {
	Each func(*yaml.Node, *Weight) error // counts more of a value, once what is below it is weighed; may be nil

	targets map[*yaml.Node]*Weight // of aliases; nil while one is weighed
}

// Weigh returns the weight of a value. The error is an [Excess], or one of Each.
func (s *Scale) Weigh(n *yaml.Node) (Weight, error) {
	if n.Kind == yaml.AliasNode {
		return s.weighAlias(n)
	}
	w := Weight{Values: 1, Text: len(n.Value)}
	for _, c := range n.Content {
		below, err := s.Weigh(c)
		if err != nil {
			return w, err
		}
		w.Add(below)
		switch {
		case w.AddedValues > maxValues:
			return w, &Excess{Line: n.Line, What: fmt.Sprintf("its aliases stand for more than %d values", maxValues),
				Hint: "Use fewer nested aliases"}
		case w.AddedText > maxText:
			return w, &Excess{Line: n.Line, What: fmt.Sprintf("its aliases stand for more than %d MiB of text",
				maxText>>20), Hint: "Use fewer aliases for long texts"}
		}
	}
	if s.Each == nil {
		return w, nil
	}
	return w, s.Each(n, &w)
}

func (s *Scale) weighAlias(n *yaml.Node) (Weight, error) {
	if w, seen := s.targets[n.Alias]; seen {
		if w == nil {
			return Weight{}, &Excess{Line: n.Line, Alias: n.Value, What: "an alias is recursive",
				Hint: "Replace the alias with its content"}
		}
		return *w, nil
	}
	if s.targets == nil {
		s.targets = map[*yaml.Node]*Weight{}
	}
	s.targets[n.Alias] = nil
	w, err := s.Weigh(n.Alias)
	w.AddedValues, w.AddedText = w.Values, w.Text
	s.targets[n.Alias] = &w
	return w, err
}

// Excess is the error of aliases that stand for too much. Its text contains nothing of the document.
type Excess struct {
	Line  int
	Alias string // the name of one that is recursive
	What  string
	Hint  string
}

func (e *Excess) Error() string { return e.What + "; " + strings.ToLower(e.Hint[:1]) + e.Hint[1:] }
