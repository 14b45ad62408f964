package localbuild

import (
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
)

// hashed matches the name of a generated object: a name and the hash of the contents.
var hashed = regexp.MustCompile(`^(.+)-[a-z0-9]{10}$`)

// adoptHashes gives generated objects with masked values the names that they have in the inventory. Without the keys,
// the hash is that of the masked values, so that the object would look like another one.
func adoptHashes(objects []*unstructured.Unstructured, inventory apply.Inventory) {
	declared := map[apply.Ref]bool{}
	for _, o := range objects {
		declared[refOf(o)] = true
	}
	names := map[string]string{}
	for _, o := range objects {
		match := hashed.FindStringSubmatch(o.GetName())
		if match == nil || inventory.Has(refOf(o).Entry()) || !HasMasked(o.Object) {
			continue
		}
		var found []string
		for _, e := range inventory {
			ref, err := e.Ref()
			if err != nil {
				continue
			}
			ref.Version = ""
			was := hashed.FindStringSubmatch(ref.Name)
			if was != nil && was[1] == match[1] && ref.Kind == o.GetKind() && ref.Group == refOf(o).Group &&
				(o.GetNamespace() == "" || ref.Namespace == o.GetNamespace()) && !declared[ref] {
				found = append(found, ref.Name)
			}
		}
		if len(found) == 1 {
			names[o.GetName()] = found[0]
		}
	}
	if len(names) == 0 {
		return
	}
	for _, o := range objects {
		renamed(o.Object, names)
	}
}

// renamed returns a value in which strings that are a name are the new name.
func renamed(v any, names map[string]string) any {
	switch v := v.(type) {
	case map[string]any:
		for key, item := range v {
			v[key] = renamed(item, names)
		}
	case []any:
		for n, item := range v {
			v[n] = renamed(item, names)
		}
	case string:
		if name, ok := names[v]; ok {
			return name
		}
	}
	return v
}

// refOf returns the reference of an object, without its version.
func refOf(o *unstructured.Unstructured) apply.Ref {
	gvk := o.GroupVersionKind()
	return apply.Ref{Group: gvk.Group, Kind: gvk.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}
