package apply

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// keepEmptyMaps dry-runs an apply again that the server refused, with the maps that the manifest no longer declares.
// Other implementations apply objects as they serialize them, and so own empty maps, such as spec.template.metadata of
// a Job. To remove such a map removes everything that the server has set in it, which the server refuses for immutable
// fields. The map without a declared field says nothing, so it is kept. It returns what to apply with the result; no
// result if there is no such map or the server refuses this apply as well.
func (r *run) keepEmptyMaps(ctx context.Context, o *object, desired *unstructured.Unstructured) (kept,
	result *unstructured.Unstructured) {
	live, err := r.client(o.resource, o.ref.Namespace).Get(ctx, o.ref.Name, metav1.GetOptions{})
	if err != nil || IsExcluded(live, r.req.Owner) {
		return nil, nil
	}
	kept, maps := r.managers.withEmptyMaps(live, desired)
	if len(maps) == 0 {
		return nil, nil
	}
	if result, err = r.patch(ctx, o, kept, patchOptions{dryRun: true}); err != nil {
		return nil, nil
	}
	for _, p := range maps { // an empty map replaces an atomic one, which is a change
		if !equality.Semantic.DeepEqual(mapAt(live.Object, p), mapAt(result.Object, p)) {
			return nil, nil
		}
	}
	return kept, result
}

// withEmptyMaps returns the manifest with the maps that we own as a whole in the live object, and that the manifest
// lacks, as empty ones; and their paths.
func (m managers) withEmptyMaps(live, desired *unstructured.Unstructured) (kept *unstructured.Unstructured,
	maps []fieldpath.Path) {
	ours := fieldsOf(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return m.isOurs(e) && e.APIVersion == desired.GetAPIVersion()
	})
	for p := range ours.All() {
		if !hasField(desired.Object, p) && mapAt(live.Object, p) != nil {
			maps = append(maps, p.Copy())
		}
	}
	if len(maps) == 0 {
		return nil, nil
	}
	kept = desired.DeepCopy()
	for _, p := range maps {
		fields := make([]string, 0, len(p))
		for _, e := range p {
			fields = append(fields, *e.FieldName)
		}
		if unstructured.SetNestedMap(kept.Object, map[string]any{}, fields...) != nil {
			return nil, nil
		}
	}
	return kept, maps
}

// mapAt returns the map at a path that leads through maps only; nil if there is none.
func mapAt(v map[string]any, p fieldpath.Path) map[string]any {
	for _, e := range p {
		if e.FieldName == nil {
			return nil
		}
		next, ok := v[*e.FieldName].(map[string]any)
		if !ok {
			return nil
		}
		v = next
	}
	return v
}
