package diff

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// path is the path of a field.
type path []step

// step is a key of a map, or the name of an item of a list in brackets.
type step struct {
	name string
	item bool
}

func (p path) field(key string) path { return append(p[:len(p):len(p)], step{name: key}) }
func (p path) item(name string) path { return append(p[:len(p):len(p)], step{name: name, item: true}) }

// last returns the step that is n steps before the end; zero if there is none.
func (p path) last(n int) step {
	if len(p) <= n {
		return step{}
	}
	return p[len(p)-1-n]
}

// unquoted matches names that need no quotes in a path.
var unquoted = regexp.MustCompile(`^[\w-]+$`)

func (p path) String() string {
	var b strings.Builder
	for n, s := range p {
		s.name = redact.Text(s.name)
		switch {
		case s.item:
			b.WriteString(s.name)
		case !unquoted.MatchString(s.name):
			b.WriteString("[" + strconv.Quote(s.name) + "]")
		default:
			if n > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.name)
		}
	}
	return b.String()
}

// mergeKeys lists the fields that may identify the items of lists. The first entry is used for which all items of both
// lists have all fields, and no two items of a list have the same values.
var mergeKeys = [][]string{
	{"name"}, {"namespace", "name"}, {"kind", "name"}, {"kind", "namespace", "name"},
	{"containerPort"}, {"containerPort", "protocol"}, {"port"}, {"port", "protocol"},
	{"mountPath"}, {"devicePath"}, {"topologyKey"}, {"ip"}, {"host"}, {"key"}, {"type"}, {"path"}, {"id"},
}

// names contains the names of the items of two lists, such as [name=web].
type names struct{ before, after []string }

// itemNames returns the names of the items of two lists by a merge key. It reports false if no merge key fits.
func itemNames(before, after []any) (names, bool) {
	if len(before)+len(after) == 0 {
		return names{}, false
	}
	for _, key := range mergeKeys {
		b, ok1 := named(before, key)
		a, ok2 := named(after, key)
		if ok1 && ok2 {
			return names{b, a}, true
		}
	}
	return names{}, false
}

func named(list []any, key []string) ([]string, bool) {
	var out []string
	seen := map[string]bool{}
	for _, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			return nil, false
		}
		var parts []string
		for _, field := range key {
			switch v := m[field].(type) {
			case string:
				if redact.IsSealed(v) {
					v = redact.Masked + v[len(v)-4:] // items with different names stay different
				}
				if !unquoted.MatchString(strings.NewReplacer(".", "", "/", "", ":", "").Replace(v)) {
					v = strconv.Quote(v)
				}
				parts = append(parts, field+"="+v)
			case int64, float64, int:
				parts = append(parts, fmt.Sprintf("%s=%v", field, v))
			default:
				return nil, false
			}
		}
		name := "[" + strings.Join(parts, ",") + "]"
		if seen[name] {
			return nil, false
		}
		seen[name] = true
		out = append(out, name)
	}
	return out, true
}

func byName(names []string, list []any) map[string]any {
	out := make(map[string]any, len(names))
	for n, name := range names {
		out[name] = list[n]
	}
	return out
}

func index(n int) string { return "[" + strconv.Itoa(n) + "]" }

func allMaps(list []any) bool {
	for _, item := range list {
		if _, ok := item.(map[string]any); !ok {
			return false
		}
	}
	return true
}
