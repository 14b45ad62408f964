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

// Problem is a field whose expressions cannot be evaluated.
type Problem struct {
	Field string // such as spec.containers[0].image
	Err   error
}

func (p Problem) String() string { return p.Field + ": " + p.Err.Error() }

// Object replaces the variables in all keys and values of an object, and returns what is wrong with it.
//
// A value is what it would be if its text stood in a YAML file: ${replicas} becomes a number if it holds one, and
// "${quote}${replicas}${quote}" with a double quote as the variable quote stays text. What is no YAML, spans
// lines, or would be cut by a comment is text as it is. What is put in place is taken off room, in bytes,
// which all objects of a build share: variables are small, but may stand in many places.
func Object(object map[string]any, variables map[string]string, strict bool, room *int) []Problem {
	w := &walker{variables: variables, strict: strict, room: room}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		w.member(object, key, key)
	}
	return w.problems
}

type walker struct {
	variables map[string]string
	strict    bool
	room      *int
	problems  []Problem
}

// errNoRoom ends a substitution.
var errNoRoom = errors.New("the values of variables would take more room than all objects of a build may")

// expand replaces the variables in one text.
func (w *walker) expand(text string) (string, error) {
	if *w.room < 0 {
		return "", errNoRoom
	}
	out, err := Expand(text, w.variables, w.strict)
	*w.room -= len(out)
	return out, err
}

func (w *walker) report(field string, err error) {
	w.problems = append(w.problems, Problem{field, err})
}

// value returns what stands in place of a value.
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
		if !strings.Contains(v, "${") {
			return v
		}
		text, err := w.expand(v)
		if err != nil {
			w.report(field, err)
			return v
		}
		return typed(v, text)
	}
	return v
}

// member replaces the key and the value of a member of a map.
func (w *walker) member(m map[string]any, key, field string) {
	value := w.value(field, m[key])
	to := key
	if strings.Contains(key, "${") {
		var err error
		if to, err = w.expand(key); err != nil {
			w.report(field, err)
			return
		}
		delete(m, key)
		if _, taken := m[to]; taken {
			w.report(field, errors.New("the key stands twice once its variables are replaced"))
			return
		}
	}
	m[to] = value
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func join(field, key string) string {
	if plainKey.MatchString(key) {
		return field + "." + key
	}
	return fmt.Sprintf("%s[%q]", field, key)
}

// typed gives the text that came of a value the type that YAML gives it.
func typed(was, text string) any {
	if strings.ContainsAny(text, "\n\r") || strings.Contains(text, " #") || !plain(was) {
		return text
	}
	b, err := yaml.YAMLToJSON([]byte("v: " + text + "\n"))
	if err != nil {
		return text
	}
	var read map[string]any
	if err := json.Unmarshal(b, &read); err != nil {
		return text
	}
	if _, isText := read["v"].(string); isText && !strings.HasPrefix(text, `"`) && !strings.HasPrefix(text, "'") {
		return text
	}
	return read["v"]
}

// plain tells whether YAML writes a text without quotes, so that what comes in its place may be of another type.
func plain(text string) bool {
	if strings.ContainsAny(text, "\n\r") {
		return false
	}
	b, err := yaml.Marshal(text)
	return err == nil && strings.TrimSuffix(string(b), "\n") == text
}
