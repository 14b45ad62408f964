// Package diff tells a person what changes between two objects: each field by its path, before and after,
// with what may be secret masked. It knows no cluster.
package diff

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// maxDifferences is how many changed fields of an object are told.
const maxDifferences = 1000

// Difference is one field that changes. What may be secret in its values is masked.
type Difference struct {
	// such as spec.template.spec.containers[name=web].image; items of lists by their merge keys, else by index
	Path   string
	Before any // nil if the field comes
	After  any // nil if the field goes
}

// Objects returns the fields in which two objects differ, in the order of their names, up to a thousand. A
// nil object is one that is not there. A field that comes or goes with all that is in it is one difference.
// What names an object, its status, and what else the API server sets by itself are left out. Values that
// hold one of the secrets are masked in any field, and so are then those that went: they may hold an older
// secret.
func Objects(before, after *unstructured.Unstructured, secrets ...string) []Difference {
	c := &comparison{secret: isSecret(before) || isSecret(after), secrets: secrets}
	c.maps(nil, declared(before), declared(after))
	return c.found
}

// undeclared are fields of the metadata that nobody declares, and those that name the object.
var undeclared = map[string]bool{
	"managedFields": true, "resourceVersion": true, "uid": true, "generation": true, "selfLink": true,
	"creationTimestamp": true,
	"deletionTimestamp": true, "deletionGracePeriodSeconds": true, "name": true, "namespace": true,
}

// declared is what of an object may change by what is declared. It shares values with the object.
func declared(o *unstructured.Unstructured) map[string]any {
	out := map[string]any{}
	metadata := map[string]any{}
	if o != nil {
		maps.Copy(out, o.Object)
		m, _ := out["metadata"].(map[string]any)
		maps.Copy(metadata, m)
	}
	for _, k := range []string{"status", "kind", "apiVersion"} {
		delete(out, k)
	}
	maps.DeleteFunc(metadata, func(k string, _ any) bool { return undeclared[k] })
	out["metadata"] = metadata
	return out
}

// comparison of two objects under way.
type comparison struct {
	secret  bool     // they are Secrets
	secrets []string // values that nobody may see
	found   []Difference
}

func (c *comparison) add(at path, before, after any) {
	if len(c.found) < maxDifferences {
		before, after = c.mask(at, before, after)
		c.found = append(c.found, Difference{at.String(), before, after})
	}
}

func (c *comparison) values(at path, before, after any) {
	switch b := before.(type) {
	case map[string]any:
		if a, ok := after.(map[string]any); ok {
			c.maps(at, b, a)
			return
		}
	case []any:
		if a, ok := after.([]any); ok {
			c.lists(at, b, a)
			return
		}
	}
	if !same(before, after) {
		c.add(at, before, after)
	}
}

func (c *comparison) maps(at path, before, after map[string]any) {
	keys := maps.Clone(before)
	if keys == nil {
		keys = map[string]any{}
	}
	maps.Copy(keys, after)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		c.values(at.field(k), before[k], after[k])
	}
}

func (c *comparison) lists(at path, before, after []any) {
	if same(before, after) {
		return
	}
	names, keyed := itemNames(before, after)
	if !keyed {
		if allMaps(before) && allMaps(after) {
			c.byIndex(at, before, after)
		} else {
			c.add(at, before, after)
		}
		return
	}
	was, is := byName(names.before, before), byName(names.after, after)
	var kept, keeps []any
	for n, name := range names.before {
		item, stays := is[name]
		c.values(at.item(name), before[n], item)
		if stays {
			kept = append(kept, strings.Trim(name, "[]"))
		}
	}
	for n, name := range names.after {
		if _, was := was[name]; was {
			keeps = append(keeps, strings.Trim(name, "[]"))
		} else {
			c.values(at.item(name), nil, after[n])
		}
	}
	if !same(kept, keeps) {
		c.add(at.item("[order]"), kept, keeps)
	}
}

func (c *comparison) byIndex(at path, before, after []any) {
	item := func(list []any, n int) any {
		if n < len(list) {
			return list[n]
		}
		return nil
	}
	for n := range max(len(before), len(after)) {
		c.values(at.item(index(n)), item(before, n), item(after, n))
	}
}

// same tells whether two values are equal. Numbers are, however they were read.
func same(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && maps.EqualFunc(x, y, same)
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, same)
	}
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int:
		return float64(n), true
	case int64:
		return float64(n), true
	case float64:
		return n, true
	default:
		return 0, false
	}
}
