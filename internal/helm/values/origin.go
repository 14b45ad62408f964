package values

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// Origin says where a value came from.
type Origin struct {
	Path   string // dots separate keys; a dot in a key is preceded by a backslash, as in Helm's --set
	From   string // such as Secret 'team/app', key 'values.yaml'
	Secret bool   // it came from a Secret
}

// minSecret is the minimum length of texts that are masked. Shorter texts occur by chance.
const minSecret = 4

// appendTexts appends the texts in a value that are masked.
func appendTexts(texts []string, v any) []string {
	switch v := v.(type) {
	case string:
		if len(v) >= minSecret {
			texts = append(texts, v)
		}
	case []any:
		for _, item := range v {
			texts = appendTexts(texts, item)
		}
	case map[string]any:
		for _, item := range v {
			texts = appendTexts(texts, item)
		}
	}
	return texts
}

// Mask returns a copy of values in which everything that comes from a Secret is replaced.
func Mask(values map[string]any, origins []Origin, replacement string) map[string]any {
	from := map[string]bool{}
	for _, o := range origins {
		if o.Secret {
			from[o.Path] = true
		}
	}
	return mask(values, nil, from, replacement).(map[string]any)
}

func mask(v any, path []string, from map[string]bool, replacement string) any {
	table, ok := v.(map[string]any)
	if from[pathText(path)] && (!ok || len(table) == 0) {
		return replacement
	}
	if !ok {
		return v
	}
	out := make(map[string]any, len(table))
	for key, value := range table {
		out[key] = mask(value, append(slices.Clone(path), key), from, replacement)
	}
	return out
}

// layer is one source of values.
type layer struct {
	from   string
	secret bool
	isFile bool
	values map[string]any
}

// origins returns the origin of each leaf of the result. Lists are leaves. A list that several sources set in part has
// the origins of all of them. It takes memory for each path: many leaves may have the same long path before them.
func (c *composer) origins(ctx context.Context) ([]Origin, error) {
	var found []Origin
	err := walk(c.result, nil, func(path []string, value any) error {
		if err := c.memory.Grow(ctx, pathBytes(path)); err != nil {
			return err
		}
		var last *layer
		for i := range c.layers {
			set, ok := at(c.layers[i].values, path)
			if !ok {
				continue
			}
			if _, isList := set.([]any); isList && !reflect.DeepEqual(set, value) {
				found = append(found, c.layers[i].origin(path)) // a part of the list
				continue
			}
			if reflect.DeepEqual(set, value) {
				last = &c.layers[i]
			}
		}
		if last != nil {
			found = append(found, last.origin(path))
		}
		return nil
	})
	sort.SliceStable(found, func(i, j int) bool { return found[i].Path < found[j].Path })
	return found, err
}

// originBytes is the memory of an origin besides its path, and of what is made of it.
const originBytes = 300

// pathBytes estimates the memory in bytes of the origin of a leaf.
func pathBytes(path []string) int64 {
	size := int64(originBytes)
	for _, key := range path {
		size += 2 * int64(len(key)+1) // all of it may be dots
	}
	return size
}

func (l layer) origin(path []string) Origin {
	return Origin{Path: pathText(path), From: l.from, Secret: l.secret}
}

func pathText(path []string) string {
	escaped := make([]string, len(path))
	for i, key := range path {
		escaped[i] = strings.ReplaceAll(key, ".", `\.`)
	}
	return strings.Join(escaped, ".")
}

// walk calls visit for each leaf: everything but maps with keys. Visit must not keep the path. An error ends it.
func walk(v any, path []string, visit func([]string, any) error) error {
	table, ok := v.(map[string]any)
	if !ok || len(table) == 0 {
		if len(path) > 0 {
			return visit(path, v)
		}
		return nil
	}
	for key, value := range table {
		if err := walk(value, append(path, key), visit); err != nil {
			return err
		}
	}
	return nil
}

// at returns the value at a path.
func at(values map[string]any, path []string) (any, bool) {
	var v any = values
	for _, key := range path {
		table, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = table[key]; !ok {
			return nil, false
		}
	}
	return v, true
}

func copyMap(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = copyValue(v)
	}
	return out
}

func copyValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return copyMap(v)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = copyValue(item)
		}
		return out
	}
	return v
}

var line = regexp.MustCompile(`line (\d+)(?:, column (\d+))?: (.*)`)

// yamlProblem returns where and why YAML is invalid. The reason for secret content has no quoted text: it may
// be content.
func yamlProblem(err error, secret bool) (place, reason string) {
	text := err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "error unmarshaling JSON: ", "yaml: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	if m := line.FindStringSubmatch(text); m != nil {
		place, text = "line "+m[1]+": ", m[3]
		if m[2] != "" {
			place = fmt.Sprintf("line %s, column %s: ", m[1], m[2])
		}
	}
	switch {
	case strings.Contains(text, "into Go value of type") || strings.Contains(text, "cannot unmarshal"):
		return place, "the content is not a map"
	case secret && strings.ContainsAny(text, "`'\""):
		return place, "the content cannot be parsed"
	}
	return place, text
}

func keyList(keys []string) string {
	if len(keys) == 0 {
		return "none"
	}
	slices.Sort(keys)
	return strings.Join(keys, ", ")
}
