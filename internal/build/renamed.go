package build

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// checkRenamed refuses a Namespace to which spec.targetNamespace gave another name. Kustomize renames every Namespace
// that a kustomization with a namespace declares. So a set would take over the target namespace, often that of the
// Kustomization itself, and its deletion would delete everything in it. Only sets that declare the target namespace are
// built again, without it.
func (f *filesystem) checkRenamed(req Request, result *Result) error {
	target := req.TargetNamespace
	if target == "" || !slices.Contains(namespacesIn(result.Objects), target) {
		return nil
	}
	req.TargetNamespace = ""
	declared, err := f.veiled(req)
	if err != nil {
		return nil // the set cannot be built without its target
	}
	for _, o := range declared.Objects {
		if !isNamespace(o) || slices.Contains(namespacesIn(result.Objects), o.GetName()) {
			continue
		}
		where := ""
		if file := declared.Origin(o); file != "" {
			where = " in " + file
		}
		return refusal("spec.targetNamespace '%s' would rename Namespace '%s'%s", target, o.GetName(), where).
			WithHint("Remove the Namespace from the source, name it '%s', or remove spec.targetNamespace", target)
	}
	return nil
}

func isNamespace(o *unstructured.Unstructured) bool {
	return o.GetKind() == "Namespace" && o.GroupVersionKind().Group == ""
}

// namespacesIn returns the names of the Namespaces of a set.
func namespacesIn(objects []*unstructured.Unstructured) (names []string) {
	for _, o := range objects {
		if isNamespace(o) {
			names = append(names, o.GetName())
		}
	}
	return names
}
