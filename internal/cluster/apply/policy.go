package apply

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations or labels that control how an object is applied. The prefix is the group of the owner.
const (
	ssaKey       = "/ssa"       // Override, Merge, IfNotPresent, Ignore
	forceKey     = "/force"     // enabled: re-created when an immutable field changes
	pruneKey     = "/prune"     // disabled: never pruned
	reconcileKey = "/reconcile" // disabled: never modified
)

// hasPolicy reports whether an annotation or a label of the owner's group has a value. Case does not matter.
func hasPolicy(o metav1.Object, owner Owner, suffix, value string) bool {
	key := owner.Group + suffix
	return strings.EqualFold(o.GetAnnotations()[key], value) || strings.EqualFold(o.GetLabels()[key], value)
}

// IsExcluded reports whether an annotation or a label of an object excludes it: it must not be modified.
func IsExcluded(o metav1.Object, owner Owner) bool {
	return hasPolicy(o, owner, reconcileKey, "disabled") || hasPolicy(o, owner, ssaKey, "Ignore")
}

// Yields reports whether an annotation or a label of an object leaves it, or its fields, to other writers.
func Yields(o metav1.Object, owner Owner) bool {
	return IsExcluded(o, owner) || isCreateOnly(o, owner) || keepsOtherFields(o, owner)
}

// isCreateOnly reports whether an object must not be modified once it exists.
func isCreateOnly(o metav1.Object, owner Owner) bool {
	return hasPolicy(o, owner, ssaKey, "IfNotPresent")
}

// keepsOtherFields reports whether fields of other managers must not be taken over.
func keepsOtherFields(o metav1.Object, owner Owner) bool { return hasPolicy(o, owner, ssaKey, "Merge") }

// allowsRecreate reports whether an object may be deleted and created again when an immutable field changes.
func allowsRecreate(o metav1.Object, owner Owner) bool {
	return hasPolicy(o, owner, forceKey, "enabled")
}
