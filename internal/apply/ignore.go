package apply

import (
	"context"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Ignored are fields of objects that others may set: they are applied when an object is created, and left to whoever
// changes them from then on.
type Ignored struct {
	Matches   func(*unstructured.Unstructured) bool
	Paths     []string // JSON pointers (RFC 6901); a list's element is named by its index
	DriftOnly bool     // only as long as the object is declared as it was: a new declaration is applied whole
}

// ignoredPaths returns the fields of an object that are left to others; anew tells that its declaration is
// not as it was.
func ignoredPaths(rules []Ignored, o *unstructured.Unstructured, anew bool) [][]string {
	var paths [][]string
	for _, rule := range rules {
		if rule.DriftOnly && anew || !rule.Matches(o) {
			continue
		}
		for _, p := range rule.Paths {
			paths = append(paths, pointer(p))
		}
	}
	return paths
}

// pointer splits a JSON pointer.
func pointer(p string) []string {
	parts := strings.Split(strings.TrimPrefix(p, "/"), "/")
	for i := range parts {
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(parts[i], "~1", "/"), "~0", "~")
	}
	return parts
}

// leaveIgnored makes the item say of ignored fields what keeps them as they are in the cluster. A field that
// is still ours alone gets its live value, as leaving it out would remove it; one that somebody else set is
// left out, so that it is theirs.
func (r *run) leaveIgnored(ctx context.Context, i *item) error {
	k := r.known(r.req.Owner, i)
	paths := ignoredPaths(r.req.Ignore, i.whole, !k.same && (k.known || !r.req.SameDeclaration))
	if len(paths) == 0 {
		return nil
	}
	live, err := r.client(i.resource, i.ref.Namespace).Get(ctx, i.ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		i.desired = i.whole
		return nil
	}
	if err != nil {
		return err
	}
	i.desired = i.whole.DeepCopy()
	ours := r.managers.ownedFields(live.GetManagedFields())
	for _, path := range paths {
		leave(i.desired.Object, live.Object, path, ours[fieldKey(path)])
	}
	return nil
}

// leave sets the value at a path to the live one if it is kept, and removes it otherwise. What is not
// declared stays so.
func leave(desired, live any, path []string, keep bool) {
	last := len(path) == 1
	switch d := desired.(type) {
	case map[string]any:
		l, _ := live.(map[string]any)
		value, declared := d[path[0]]
		liveValue, there := l[path[0]]
		switch {
		case !declared:
		case !last:
			leave(value, liveValue, path[1:], keep)
		case keep && there:
			d[path[0]] = liveValue
		default:
			delete(d, path[0])
		}
	case []any:
		n, err := strconv.Atoi(path[0])
		if err != nil || n < 0 || n >= len(d) || last {
			return // an element as a whole is what its list is about
		}
		l, _ := live.([]any)
		leave(d[n], counterpart(d[n], n, l), path[1:], keep)
	}
}

// counterpart finds the live element of a list that stands for the n-th declared one: by its name, else by its place.
func counterpart(element any, n int, live []any) any {
	if m, ok := element.(map[string]any); ok && m["name"] != nil {
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

// fieldKey names a path with no regard to which element of a list it leads through.
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

// ownedFields are the fields that our manager owns or takes over, as named by [fieldKey], with all that they stand in.
func (m managers) ownedFields(entries []metav1.ManagedFieldsEntry) map[string]bool {
	owned := map[string]bool{}
	counts := func(e metav1.ManagedFieldsEntry) bool { return m.isOurs(e) || m.overrides(e) }
	for p := range fieldsOf(entries, counts).All() {
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
