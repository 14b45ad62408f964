package build

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// checkRenamed refuses a Namespace to which spec.targetNamespace gave another name. Kustomize renames every Namespace
// that a kustomization with a namespace declares. So a set would take over the target namespace, often that of the
// Kustomization itself, and its deletion would delete everything in it. Only sets that declare the target namespace are
// built again, without it, and those that kustomize refuses since several Namespaces would get that name. It returns
// failed, the error of the build, if it finds no such Namespace.
func (f *filesystem) checkRenamed(req Request, result *Result, failed error) error {
	target, built := req.TargetNamespace, namespacesIn(result.Objects)
	if failed != nil && strings.Contains(failed.Error(), "namespace transformation produces ID conflict") {
		built = []string{target}
	}
	if target == "" || !slices.Contains(built, target) {
		return failed
	}
	req.TargetNamespace = ""
	declared, err := f.veiled(req)
	if err != nil {
		return failed // the set cannot be built without its target
	}
	for _, o := range declared.Objects {
		if !isNamespace(o) || slices.Contains(built, o.GetName()) {
			continue
		}
		where := ""
		if file := declared.Origin(o); file != "" {
			where = " in " + file
		}
		return refusal("spec.targetNamespace '%s' would rename Namespace '%s'%s", target, o.GetName(), where).
			WithHint("Remove the Namespace from the source, name it '%s', or remove spec.targetNamespace", target)
	}
	return failed
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
