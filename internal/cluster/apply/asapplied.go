package apply

import (
	"context"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// asApplied returns the live object if an earlier process applied it and it shows that another apply would change
// nothing; nil if it does not show that. This costs one read, which the server answers from its cache, or none if the
// object was listed. A full comparison dry-runs the object.
func (r *run) asApplied(ctx context.Context, o *object, desired *unstructured.Unstructured,
	known knownState) *unstructured.Unstructured {
	if known.tracked || r.req.Resync || r.preview && !r.track || !r.req.Previous.Has(o.ref.Entry()) {
		return nil
	}
	live := r.listed[o.ref]
	if live == nil {
		var err error
		live, err = r.client(o.resource, o.ref.Namespace).Get(ctx, o.ref.Name, metav1.GetOptions{ResourceVersion: "0"})
		if err != nil {
			return nil // the dry-run says why
		}
	}
	if live.GetDeletionTimestamp() != nil || IsExcluded(live, r.req.Owner) || isCreateOnly(live, r.req.Owner) ||
		!r.managers.isAsApplied(live, desired) {
		return nil
	}
	return live
}

// isAsApplied reports whether an apply of a manifest would change nothing of a live object: we own exactly the fields
// of the manifest, all have its values, and no fields of others are taken over. Defaults and webhooks that have changed
// since are not seen. If it reports false, the apply may still change nothing, for example if the server writes a value
// differently.
func (m managers) isAsApplied(live, manifest *unstructured.Unstructured) bool {
	fields := live.GetManagedFields()
	if slices.ContainsFunc(fields, func(e metav1.ManagedFieldsEntry) bool {
		return m.overrides(e) || m.isOurs(e) && e.APIVersion != manifest.GetAPIVersion()
	}) {
		return false
	}
	own := fieldsOf(fields, m.isOurs)
	others := fieldsOf(fields, func(e metav1.ManagedFieldsEntry) bool { return !m.isOurs(e) })
	return !own.Empty() && ownership{own, others}.isExactly(ownable(manifest), live.Object)
}

// ownable returns the part of a manifest that managed fields can contain. It shares values with the manifest.
func ownable(manifest *unstructured.Unstructured) map[string]any {
	out := maps.Clone(manifest.Object)
	delete(out, "apiVersion")
	delete(out, "kind")
	metadata, _ := out["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	delete(metadata, "name")
	delete(metadata, "namespace")
	if out["metadata"] = metadata; len(metadata) == 0 {
		delete(out, "metadata")
	}
	return out
}

// ownership is who owns the fields of a value.
type ownership struct{ own, others *fieldpath.Set }

// isExactly reports whether we own exactly the fields of a declared value, and the live value has the same. Items of a
// list are compared by their merge keys if they are owned one by one; they must be in the same order.
func (o ownership) isExactly(declared, live any) bool {
	all := elements(o.own)
	switch declared := declared.(type) {
	case map[string]any:
		values, ok := live.(map[string]any)
		if !ok || len(all) != len(declared) {
			return false
		}
		for name, item := range declared {
			if !o.isExactlyAt(fieldpath.PathElement{FieldName: &name}, item, values[name]) {
				return false
			}
		}
		return true
	case []any:
		values, ok := live.([]any)
		if !ok || len(all) != len(declared) {
			return false
		}
		for _, item := range declared {
			selects := func(e fieldpath.PathElement) bool { return mayBeAt(item, e) }
			n := slices.IndexFunc(all, selects)
			if n < 0 || slices.ContainsFunc(all[n+1:], selects) {
				return false // not owned, or it is not clear which one it is
			}
			at := slices.IndexFunc(values, func(v any) bool { return isAt(v, all[n]) })
			if at < 0 || !o.isExactlyAt(all[n], item, values[at]) {
				return false
			}
			values = values[at+1:]
		}
		return true
	}
	return false // a value without fields
}

// isExactlyAt is isExactly for the field at an element of a path. A field that is owned as a whole may be a map or list
// that was declared empty, while its items belong to others.
func (o ownership) isExactlyAt(e fieldpath.PathElement, declared, live any) bool {
	below := ownership{o.own.WithPrefix(e), o.others.WithPrefix(e)}
	if !below.own.Empty() {
		return below.isExactly(declared, live)
	}
	return o.own.Members.Has(e) && below.others.Empty() &&
		value.Equals(value.NewValueInterface(declared), value.NewValueInterface(live))
}

// elements returns the elements with which the paths of a set begin.
func elements(set *fieldpath.Set) []fieldpath.PathElement {
	var out []fieldpath.PathElement
	for e := range set.Members.All() {
		out = append(out, e)
	}
	for e := range set.Children.All() {
		if !set.Members.Has(e) {
			out = append(out, e)
		}
	}
	return out
}
