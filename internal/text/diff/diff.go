// Package diff compares two objects for people: each changed field by its path, with the values before and
// after. It masks values that may be secret, and sends no requests.
package diff

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// maxDifferences is the maximum number of differences of an object.
const maxDifferences = 1000

// Difference is a changed field. Values that may be secret are masked.
type Difference struct {
	// Path is such as spec.template.spec.containers[name=web].image. Items of lists are named by merge keys, else by
	// index.
	Path   string
	Before any // nil if the field was added
	After  any // nil if the field was removed
}

// Objects returns the fields in which two objects differ, sorted by path, up to 1,000. An object that does not exist is
// nil. A field that was added or removed with all its contents is one difference. The name of an object, its status and
// other fields that the API server sets are left out. What may be shown is decided before: see [redact.Veil].
func Objects(before, after *unstructured.Unstructured) []Difference {
	c := &comparison{secret: isSecret(before) || isSecret(after)}
	c.maps(nil, comparableFields(before), comparableFields(after))
	return c.found
}

// ignoredMetadata contains fields of the metadata that the API server sets, and those that name the object.
var ignoredMetadata = map[string]bool{
	"managedFields": true, "resourceVersion": true, "uid": true, "generation": true, "selfLink": true,
	"creationTimestamp": true,
	"deletionTimestamp": true, "deletionGracePeriodSeconds": true, "name": true, "namespace": true,
}

// comparableFields returns the fields of an object that are compared. It shares values with the object.
func comparableFields(o *unstructured.Unstructured) map[string]any {
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
	maps.DeleteFunc(metadata, func(k string, _ any) bool { return ignoredMetadata[k] })
	out["metadata"] = metadata
	return out
}

// comparison collects the differences of two objects.
type comparison struct {
	secret bool // one of them is a Secret
	found  []Difference
}

func (c *comparison) add(at path, before, after any) {
	if len(c.found) < maxDifferences {
		before, after = c.mask(at, before, after)
		c.found = append(c.found, Difference{Path: at.String(), Before: before, After: after})
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
	if !equal(before, after) {
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
	if equal(before, after) {
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
	itemsBefore, itemsAfter := byName(names.before, before), byName(names.after, after)
	var orderBefore, orderAfter []any // of the items in both lists
	for n, name := range names.before {
		item, ok := itemsAfter[name]
		c.values(at.item(name), before[n], item)
		if ok {
			orderBefore = append(orderBefore, strings.Trim(name, "[]"))
		}
	}
	for n, name := range names.after {
		if _, ok := itemsBefore[name]; ok {
			orderAfter = append(orderAfter, strings.Trim(name, "[]"))
		} else {
			c.values(at.item(name), nil, after[n])
		}
	}
	if !equal(orderBefore, orderAfter) {
		c.add(at.item("[order]"), orderBefore, orderAfter)
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

// equal reports whether two values are equal. Numbers of different types may be equal.
func equal(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && maps.EqualFunc(x, y, equal)
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, equal)
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
