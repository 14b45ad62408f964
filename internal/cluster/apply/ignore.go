package apply

import (
	"context"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Ignored selects fields that other managers may set. They are applied when an object is created; after that,
// changes of them are not overwritten.
type Ignored struct {
	Matches   func(*unstructured.Unstructured) bool
	Paths     []string // JSON pointers (RFC 6901); an item of a list is named by its index
	DriftOnly bool     // a new declaration of the object is applied with all fields
}

// ignoredPaths returns the ignored fields of an object. Changed is set if its declaration changed.
func ignoredPaths(rules []Ignored, o *unstructured.Unstructured, changed bool) [][]string {
	var paths [][]string
	for _, rule := range rules {
		if rule.DriftOnly && changed || !rule.Matches(o) {
			continue
		}
		for _, p := range rule.Paths {
			paths = append(paths, splitPointer(p))
		}
	}
	return paths
}

// splitPointer splits a JSON pointer.
func splitPointer(p string) []string {
	parts := strings.Split(strings.TrimPrefix(p, "/"), "/")
	for i := range parts {
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(parts[i], "~1", "/"), "~0", "~")
	}
	return parts
}

// withoutIgnored returns the manifest of an object changed so that an apply does not change ignored fields. A
// field that only we own gets its live value, because the apply would remove it otherwise. A field that
// another manager owns is removed from the manifest, so that we no longer own it.
func (r *run) withoutIgnored(ctx context.Context, o *object, known knownState) (*unstructured.Unstructured, error) {
	changed := !known.sameDeclaration && (known.tracked || !r.req.SameDeclaration)
	paths := ignoredPaths(r.req.Ignore, o.manifest, changed)
	if len(paths) == 0 {
		return o.manifest, nil
	}
	live, err := r.client(o.resource, o.ref.Namespace).Get(ctx, o.ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return o.manifest, nil
	}
	if err != nil {
		return nil, err
	}
	desired := o.manifest.DeepCopy()
	ours := ownedFields(live.GetManagedFields(), r.managers.isOurs)
	for _, path := range paths {
		ignoreField(desired.Object, live.Object, path, ours[fieldKey(path)])
	}
	return desired, nil
}

// ignoreField sets the desired value at a path to the live one if keep is set, and removes it otherwise. A
// field that is not declared is not added.
func ignoreField(desired, live any, path []string, keep bool) {
	last := len(path) == 1
	switch d := desired.(type) {
	case map[string]any:
		l, _ := live.(map[string]any)
		value, declared := d[path[0]]
		liveValue, exists := l[path[0]]
		switch {
		case !declared:
		case !last:
			ignoreField(value, liveValue, path[1:], keep)
		case keep && exists:
			d[path[0]] = liveValue
		default:
			delete(d, path[0])
		}
	case []any:
		n, err := strconv.Atoi(path[0])
		if err != nil || n < 0 || n >= len(d) || last {
			return // a whole item cannot be ignored
		}
		l, _ := live.([]any)
		ignoreField(d[n], liveItem(d[n], n, l), path[1:], keep)
	}
}

// liveItem returns the item of a live list that corresponds to the n-th declared item: by name, else by index.
func liveItem(item any, n int, live []any) any {
	if m, ok := item.(map[string]any); ok && m["name"] != nil {
		for _, l := range live {
			if lm, ok := l.(map[string]any); ok && lm["name"] == m["name"] {
				return l
			}
		}
		return nil
	}
	if n < len(live) {
		return live[n]
	}
	return nil
}

// fieldKey returns a path as a map key, with all items of a list as one.
func fieldKey(path []string) string {
	parts := make([]string, len(path))
	for i, p := range path {
		if _, err := strconv.Atoi(p); err == nil {
			p = "*"
		}
		parts[i] = p
	}
	return strings.Join(parts, "\x00")
}

// pointsTo reports whether a JSON pointer names a field or what contains it. The index of an item is that of the
// declared list, else of the live one.
func pointsTo(pointer []string, p fieldpath.Path, declared, live any) bool {
	if len(pointer) > len(p) {
		return false
	}
	for i, part := range pointer {
		if p[i].FieldName != nil {
			if *p[i].FieldName != part {
				return false
			}
			d, _ := declared.(map[string]any)
			l, _ := live.(map[string]any)
			declared, live = d[part], l[part]
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return false
		}
		d, _ := declared.([]any)
		l, _ := live.([]any)
		switch {
		case n < len(d):
			declared, live = d[n], liveItem(d[n], n, l)
		case n < len(l):
			declared, live = nil, l[n]
		default:
			return false
		}
		if !isAt(live, p[i]) {
			return false
		}
	}
	return true
}

// ownedFields returns the fields of some managers, and their parents, as keys of [fieldKey].
func ownedFields(entries []metav1.ManagedFieldsEntry,
	selects func(metav1.ManagedFieldsEntry) bool) map[string]bool {
	owned := map[string]bool{}
	for p := range fieldsOf(entries, selects).All() {
		var parts []string
		for _, element := range p {
			name := "*"
			if element.FieldName != nil {
				name = *element.FieldName
			}
			parts = append(parts, name)
			owned[strings.Join(parts, "\x00")] = true
		}
	}
	return owned
}
