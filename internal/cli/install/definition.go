package install

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// definition holds what is needed of a CustomResourceDefinition.
type definition struct {
	group, plural, kind string
	versions            []definedVersion
	stored              []string // status.storedVersions
}

type definedVersion struct {
	name            string
	served, storage bool
	schema          map[string]any
}

func definitionOf(u *unstructured.Unstructured) definition {
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(u.Object, path...)
		return s
	}
	d := definition{group: text("spec", "group"), plural: text("spec", "names", "plural"),
		kind: text("spec", "names", "kind")}
	d.stored, _, _ = unstructured.NestedStringSlice(u.Object, "status", "storedVersions")
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	for _, v := range versions {
		m, ok := v.(map[string]any)
		if !ok {
			continue
		}
		one := definedVersion{}
		one.name, _, _ = unstructured.NestedString(m, "name")
		one.served, _, _ = unstructured.NestedBool(m, "served")
		one.storage, _, _ = unstructured.NestedBool(m, "storage")
		one.schema, _, _ = unstructured.NestedMap(m, "schema", "openAPIV3Schema")
		d.versions = append(d.versions, one)
	}
	return d
}

// storage returns the version that objects are stored in.
func (d definition) storage() string {
	for _, v := range d.versions {
		if v.storage {
			return v.name
		}
	}
	return ""
}
