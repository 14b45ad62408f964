package apply

import (
	"bytes"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// managers tells apart by their names who set fields of objects.
type managers struct {
	own        string
	overridden []string // whose fields we take over besides those that everybody does
}

func (m managers) isOurs(e metav1.ManagedFieldsEntry) bool {
	return e.Manager == m.own && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
}

// overrides tells whether fields set by this manager are taken over, so that what a person did with kubectl,
// or what was applied before there was server-side apply, does not stay behind for good.
func (m managers) overrides(e metav1.ManagedFieldsEntry) bool {
	if e.Subresource != "" {
		return false
	}
	return e.Manager == "before-first-apply" || strings.HasPrefix(e.Manager, "kubectl") ||
		slices.Contains(m.overridden, e.Manager) ||
		e.Manager == m.own && e.Operation == metav1.ManagedFieldsOperationUpdate
}

// takeOver returns the managed fields with those of overridden managers made ours, so that the next apply
// removes what is not declared. It reports false if there is nothing to take. Annotations and labels that
// tell us how to treat the object, and the request for a restart, stay with whoever set them.
func (m managers) takeOver(fields []metav1.ManagedFieldsEntry, apiVersion,
	group string) ([]metav1.ManagedFieldsEntry, bool) {
	taken := fieldpath.NewSet()
	var out []metav1.ManagedFieldsEntry
	mine := -1
	for _, e := range fields {
		if m.isOurs(e) && e.APIVersion == apiVersion {
			mine = len(out)
		}
		if !m.overrides(e) || e.APIVersion != apiVersion || e.FieldsV1 == nil {
			out = append(out, e)
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes())); err != nil {
			out = append(out, e)
			continue
		}
		kept := fieldpath.NewSet()
		for p := range set.All() {
			if keeps(p, group) {
				kept.Insert(p.Copy())
			}
		}
		take := set.Difference(kept)
		if kept.Empty() || !onlyParents(take, kept) {
			taken = taken.Union(take)
			if kept.Empty() {
				continue
			}
			e = withFields(e, kept)
		}
		out = append(out, e)
	}
	if taken.Empty() {
		return fields, false
	}
	if mine >= 0 {
		set := &fieldpath.Set{}
		if err := set.FromJSON(bytes.NewReader(out[mine].FieldsV1.GetRawBytes())); err != nil {
			return fields, false
		}
		out[mine] = withFields(out[mine], set.Union(taken))
		return out, true
	}
	entry := metav1.ManagedFieldsEntry{Manager: m.own, Operation: metav1.ManagedFieldsOperationApply,
		APIVersion: apiVersion, FieldsType: "FieldsV1"}
	return append(out, withFields(entry, taken)), true
}

// inVersion returns the managed fields with all of them said to be of a version, and false if they are already. The API
// server reads an apply in the oldest version that they name, and refuses it once that version is not served
// any more, or has not got a field that is declared (https://github.com/fluxcd/flux2/issues/5715).
func inVersion(fields []metav1.ManagedFieldsEntry, apiVersion string) ([]metav1.ManagedFieldsEntry, bool) {
	var out []metav1.ManagedFieldsEntry
	changed := false
	for _, e := range fields {
		changed = changed || e.APIVersion != apiVersion
		e.APIVersion = apiVersion
		twin := slices.IndexFunc(out, func(o metav1.ManagedFieldsEntry) bool {
			return o.Manager == e.Manager && o.Operation == e.Operation && o.Subresource == e.Subresource
		})
		if twin < 0 {
			out = append(out, e)
			continue
		}
		out[twin] = withFields(out[twin], fieldsOf([]metav1.ManagedFieldsEntry{out[twin], e}, nil))
	}
	return out, changed
}

// onlyParents tells whether a set holds nothing but the maps in which the kept fields stand.
func onlyParents(s, kept *fieldpath.Set) bool {
	only := true
	for p := range s.All() { // to the end: the library goes on after an early return, which panics
		prefix := p.String() + "."
		only = only && slices.ContainsFunc(slices.Collect(kept.All()),
			func(k fieldpath.Path) bool { return strings.HasPrefix(k.String(), prefix) })
	}
	return only
}

// keeps tells whether a field is one that stays with whoever set it.
func keeps(p fieldpath.Path, group string) bool {
	field := func(back int) string {
		if n := len(p) - 1 - back; n >= 0 && p[n].FieldName != nil {
			return *p[n].FieldName
		}
		return ""
	}
	if field(2) != "metadata" || field(1) != "annotations" && field(1) != "labels" {
		return false
	}
	return len(p) == 3 && strings.HasPrefix(field(0), group+"/") ||
		field(1) == "annotations" && field(0) == "kubectl.kubernetes.io/restartedAt"
}

func withFields(e metav1.ManagedFieldsEntry, set *fieldpath.Set) metav1.ManagedFieldsEntry {
	raw, err := set.ToJSON()
	if err != nil {
		return e // a set that was read can be written
	}
	e.FieldsV1 = &metav1.FieldsV1{}
	e.FieldsV1.SetRawBytes(raw)
	return e
}

// dropForsaken takes out of an object the fields that nobody holds once those of overridden managers are
// ours, and an apply does not name them. The object carries the managed fields that an apply leaves.
func (m managers) dropForsaken(o *unstructured.Unstructured, group string) {
	before := o.GetManagedFields()
	after, _ := m.takeOver(before, o.GetAPIVersion(), group)
	ours := func(e metav1.ManagedFieldsEntry) bool { return m.isOurs(e) && e.APIVersion == o.GetAPIVersion() }
	others := func(e metav1.ManagedFieldsEntry) bool { return !ours(e) }
	held := fieldsOf(before, ours).Union(fieldsOf(after, others))
	for p := range fieldsOf(after, ours).All() {
		if !holds(held, p) {
			without(o.Object, p)
		}
	}
}

// holds tells whether a set has a field, or any in it.
func holds(set *fieldpath.Set, p fieldpath.Path) bool {
	for _, step := range p[:len(p)-1] {
		set = set.WithPrefix(step)
	}
	return set.Has(p[len(p)-1:]) || !set.WithPrefix(p[len(p)-1]).Empty()
}

// without returns a value less the field at a path.
func without(v any, p fieldpath.Path) any {
	switch v := v.(type) {
	case map[string]any:
		if p[0].FieldName == nil {
			return v
		}
		name := *p[0].FieldName
		item, there := v[name]
		if !there {
			return v
		}
		if len(p) == 1 {
			delete(v, name)
		} else {
			v[name] = without(item, p[1:])
		}
	case []any:
		n := slices.IndexFunc(v, func(item any) bool { return isAt(item, p[0]) })
		if n < 0 {
			return v
		}
		if len(p) == 1 {
			return slices.Delete(v, n, n+1)
		}
		v[n] = without(v[n], p[1:])
	}
	return v
}

// isAt tells whether an item of a list is the one that a step leads to, by its merge keys or as itself.
func isAt(item any, step fieldpath.PathElement) bool {
	if step.Value != nil {
		return value.Equals(*step.Value, value.NewValueInterface(item))
	}
	m, ok := item.(map[string]any)
	if !ok || step.Key == nil {
		return false
	}
	for _, key := range *step.Key {
		if !value.Equals(key.Value, value.NewValueInterface(m[key.Name])) {
			return false
		}
	}
	return true
}
