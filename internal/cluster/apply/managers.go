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

// managers holds the names of field managers.
type managers struct {
	own        string
	overridden []string // taken over in addition to the default ones, see overrides
	keeps      bool     // the default ones are not taken over, see [Request.KeepOthers]
}

func (m managers) isOurs(e metav1.ManagedFieldsEntry) bool {
	return e.Manager == m.own && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
}

// overrides reports whether the fields of an entry are taken over. These are fields that were set with
// kubectl, or before server-side apply was used; otherwise they would never be removed.
func (m managers) overrides(e metav1.ManagedFieldsEntry) bool {
	if e.Subresource != "" {
		return false
	}
	byDefault := e.Manager == "before-first-apply" || strings.HasPrefix(e.Manager, "kubectl")
	return byDefault && !m.keeps ||
		slices.Contains(m.overridden, e.Manager) ||
		e.Manager == m.own && e.Operation == metav1.ManagedFieldsOperationUpdate
}

// takeOver takes over the fields of an object from those managers that the request does not keep. Ignored fields stay
// with their managers, also those that are not declared.
func (r *run) takeOver(o *object, live *unstructured.Unstructured,
	fields []metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, bool) {
	m := r.managers
	m.keeps = r.req.KeepOthers
	ignored := ignoredPaths(r.req.Ignore, o.manifest, false)
	return m.takeOver(fields, o.manifest.GetAPIVersion(), func(p fieldpath.Path) bool {
		return isKept(p, r.req.Owner.Group) || slices.ContainsFunc(ignored, func(pointer []string) bool {
			return pointsTo(pointer, p, o.manifest.Object, live.Object)
		})
	}, r.req.Owner.replaces())
}

// replaces returns a function that reports whether a field is taken over from any manager: the labels of the
// Kustomization that applied an object before a ResourceSet did, which would prune the object otherwise. It is nil for
// other owners.
func (o Owner) replaces() func(fieldpath.Path) bool {
	if o.Group != resourceSetGroup {
		return nil
	}
	return func(p fieldpath.Path) bool {
		if len(p) != 3 || p[2].FieldName == nil {
			return false
		}
		k := Owner{Group: kustomizationGroup}
		return *p[2].FieldName == k.nameLabel() || *p[2].FieldName == k.namespaceLabel()
	}
}

// takeOver returns managed fields in which we own the fields of overridden managers, so that the next apply
// removes those that are not declared. It reports false if there are none. Some fields stay with their managers, and
// some are also taken over from others; moves may be nil.
func (m managers) takeOver(fields []metav1.ManagedFieldsEntry, apiVersion string,
	stays, moves func(fieldpath.Path) bool) ([]metav1.ManagedFieldsEntry, bool) {
	taken := fieldpath.NewSet()
	var out []metav1.ManagedFieldsEntry
	mine := -1
	for _, e := range fields {
		if m.isOurs(e) && e.APIVersion == apiVersion {
			mine = len(out)
		}
		keeps := stays
		if !m.overrides(e) && moves != nil && !m.isOurs(e) && e.Subresource == "" {
			keeps = func(p fieldpath.Path) bool { return !moves(p) }
		} else if !m.overrides(e) {
			keeps = nil
		}
		if keeps == nil || e.APIVersion != apiVersion || e.FieldsV1 == nil {
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
			if keeps(p) {
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

// inVersion returns managed fields with all entries in one version. It reports false if they are already. The
// API server converts an apply to the oldest version of the entries. It refuses the apply if it no longer
// serves that version, or if that version lacks a declared field
// (https://github.com/fluxcd/flux2/issues/5715).
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

// onlyParents reports whether a set contains only parents of the kept fields.
func onlyParents(s, kept *fieldpath.Set) bool {
	only := true
	for p := range s.All() { // the iterator of the library panics after a break
		prefix := p.String() + "."
		only = only && slices.ContainsFunc(slices.Collect(kept.All()),
			func(k fieldpath.Path) bool { return strings.HasPrefix(k.String(), prefix) })
	}
	return only
}

// isKept reports whether a field stays with its manager: an annotation or label that controls how the object is
// applied, or the annotation of a rollout restart.
func isKept(p fieldpath.Path, group string) bool {
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
		return e // not possible for a set that was parsed
	}
	e.FieldsV1 = &metav1.FieldsV1{}
	e.FieldsV1.SetRawBytes(raw)
	return e
}

// dropUnowned removes the fields that an apply removes after those of overridden managers were taken over. The result
// of a dry-run has the managed fields of an apply without the takeover.
func (r *run) dropUnowned(o *object, result *unstructured.Unstructured) {
	before := result.GetManagedFields()
	after, _ := r.takeOver(o, result, before)
	ours := func(e metav1.ManagedFieldsEntry) bool {
		return r.managers.isOurs(e) && e.APIVersion == result.GetAPIVersion()
	}
	others := func(e metav1.ManagedFieldsEntry) bool { return !ours(e) }
	owned := fieldsOf(before, ours).Union(fieldsOf(after, others))
	for p := range fieldsOf(after, ours).All() {
		if !holds(owned, p) {
			without(result.Object, p)
		}
	}
}

// holds reports whether a set contains a field or a part of it.
func holds(set *fieldpath.Set, p fieldpath.Path) bool {
	for _, e := range p[:len(p)-1] {
		set = set.WithPrefix(e)
	}
	return set.Has(p[len(p)-1:]) || !set.WithPrefix(p[len(p)-1]).Empty()
}

// without returns a value without the field at a path. It may modify the value.
func without(v any, p fieldpath.Path) any {
	switch v := v.(type) {
	case map[string]any:
		if p[0].FieldName == nil {
			return v
		}
		name := *p[0].FieldName
		item, ok := v[name]
		if !ok {
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

// isAt reports whether an element of a path selects an item of a list, by merge keys or by value.
func isAt(item any, e fieldpath.PathElement) bool {
	if e.Value != nil {
		return value.Equals(*e.Value, value.NewValueInterface(item))
	}
	m, ok := item.(map[string]any)
	if !ok || e.Key == nil {
		return false
	}
	for _, key := range *e.Key {
		if !value.Equals(key.Value, value.NewValueInterface(m[key.Name])) {
			return false
		}
	}
	return true
}

// hasField reports whether a value has the field at a path. An item of a list may lack merge keys that the
// server sets by default.
func hasField(v any, p fieldpath.Path) bool {
	if len(p) == 0 {
		return true
	}
	switch v := v.(type) {
	case map[string]any:
		if p[0].FieldName == nil {
			return false
		}
		item, ok := v[*p[0].FieldName]
		return ok && hasField(item, p[1:])
	case []any:
		return slices.ContainsFunc(v, func(item any) bool { return mayBeAt(item, p[0]) && hasField(item, p[1:]) })
	default:
		return false
	}
}

// mayBeAt is isAt for an item that may lack some of the merge keys.
func mayBeAt(item any, e fieldpath.PathElement) bool {
	m, ok := item.(map[string]any)
	if !ok || e.Key == nil {
		return isAt(item, e)
	}
	found := false
	for _, key := range *e.Key {
		v, ok := m[key.Name]
		if ok && !value.Equals(key.Value, value.NewValueInterface(v)) {
			return false
		}
		found = found || ok
	}
	return found
}
