package substitute

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// Problem is an error in the expressions of a field.
type Problem struct {
	Field string // such as spec.containers[0].image
	Err   error
}

func (p Problem) String() string { return p.Field + ": " + p.Err.Error() }

// Object replaces the variables in all keys and values of an object, and returns the problems, and notes about values
// that are other than their text.
//
// A value gets the type that its text would have in a YAML file: ${replicas} becomes a number if the variable
// holds one, and "${quote}${replicas}${quote}" with a double quote as the variable quote stays a string. As in a
// YAML file, a tag such as !!str gives the type, and a comment ends the value. Text that is not valid YAML, or that has
// several lines, stays a string. Before a text is parsed, take is called with it; its error is that of the field.
func Object(object map[string]any, variables map[string]string, strict bool, left *Budget,
	take func(text []byte) error) ([]Problem, []Note) {
	w := &walker{variables: variables, strict: strict, left: left, take: take}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		w.member(object, key, key)
	}
	return w.problems, w.notes
}

// Budget is what the objects of a build may still use together: variables are small, but may be used many times.
type Budget struct {
	Room  int // bytes of the expanded texts
	Steps int // bytes of values that operations read, and comparisons of patterns
}

// NewBudget returns the budget of a build whose expanded texts have at most room bytes.
func NewBudget(room int) *Budget { return &Budget{Room: room, Steps: maxSteps} }

// maxSteps bounds the time: some patterns scan the rest of the text from every position.
const maxSteps = 200_000_000

type walker struct {
	variables map[string]string
	strict    bool
	left      *Budget
	take      func(text []byte) error
	problems  []Problem
	notes     []Note
}

// errNoRoom ends a substitution that exceeds the size limit of a build.
var errNoRoom = errors.New("the values of variables would take more room than a build allows")

// expand replaces the variables in one text.
func (w *walker) expand(text string) (string, error) {
	if w.left.Room < 0 {
		return "", errNoRoom
	}
	out, err := expand(text, w.variables, w.strict, &w.left.Steps)
	w.left.Room -= len(out)
	return out, err
}

func (w *walker) report(field string, err error) {
	w.problems = append(w.problems, Problem{field, err})
}

// value returns a value with its variables replaced.
func (w *walker) value(field string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			w.member(v, key, join(field, key))
		}
	case []any:
		for i := range v {
			v[i] = w.value(fmt.Sprintf("%s[%d]", field, i), v[i])
		}
	case string:
		if !hasExpressions(v) {
			return v
		}
		text, err := w.expand(v)
		if err != nil {
			w.report(field, err)
			return v
		}
		read, err := w.typed(v, text)
		if err != nil {
			w.report(field, err)
			return v
		}
		w.note(field, v, text, read)
		return read
	}
	return v
}

// member replaces the key and the value of a member of a map.
func (w *walker) member(m map[string]any, key, field string) {
	value := w.value(field, m[key])
	to := key
	if hasExpressions(key) {
		var err error
		if to, err = w.expand(key); err != nil {
			w.report(field, err)
			return
		}
		delete(m, key)
		if _, taken := m[to]; taken {
			w.report(field, errors.New("the key is a duplicate after its variables are replaced"))
			return
		}
	}
	m[to] = value
}

// hasExpressions reports whether [Expand] may change a text.
func hasExpressions(s string) bool { return strings.Contains(s, "${") || strings.Contains(s, "$$") }

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func join(field, key string) string {
	if plainKey.MatchString(key) {
		return field + "." + key
	}
	return fmt.Sprintf("%s[%q]", field, key)
}

// typed converts an expanded text to the type that it has in YAML. was is the text before the expansion.
func (w *walker) typed(was, text string) (any, error) {
	if strings.ContainsAny(text, "\n\r") || !plain(was) {
		return text, nil
	}
	document := []byte("v: " + text + "\n")
	if err := w.take(document); err != nil {
		return nil, err
	}
	b, err := yaml.YAMLToJSON(document)
	if err != nil {
		return text, nil //nolint:nilerr // as documented, it stays a string
	}
	var read map[string]any
	if err := json.Unmarshal(b, &read); err != nil {
		return text, nil //nolint:nilerr // as documented, it stays a string
	}
	return read["v"], nil
}

// plain reports whether YAML writes a text without quotes, so that its replacement may have another type.
func plain(text string) bool {
	if strings.ContainsAny(text, "\n\r") {
		return false
	}
	b, err := yaml.Marshal(text)
	return err == nil && strings.TrimSuffix(string(b), "\n") == text
}
