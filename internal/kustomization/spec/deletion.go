package spec

import (
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// DeletesObjects reports whether the deletion of a Kustomization deletes the objects that it applied.
func DeletesObjects(obj *kustomizev1.Kustomization) bool {
	switch obj.Spec.DeletionPolicy {
	case kustomizev1.DeletionPolicyDelete, kustomizev1.DeletionPolicyWaitForTermination:
		return true
	case kustomizev1.DeletionPolicyOrphan:
		return false
	default:
		return obj.Spec.Prune
	}
}

// CheckNotEmpty rejects an empty build that would prune all objects, such as that of a source which lost its files. A
// kustomization file can request that, and an annotation can allow it for one revision of the source.
func CheckNotEmpty(obj *kustomizev1.Kustomization, built *build.Result, revision string) error {
	n := 0
	if obj.Status.Inventory != nil {
		n = len(obj.Status.Inventory.Entries)
	}
	if len(built.Objects) > 0 || built.Empty || n == 0 || !obj.Spec.Prune {
		return nil
	}
	if revision != "" && obj.Annotations[kustomizev1.AllowEmptyAnnotation] == revision {
		return nil
	}
	return fault.New(meta.BuildFailedReason,
		"the build has no objects, and pruning would delete all %d applied objects: nothing was changed", n).
		WithHint("If this is intended, allow it for this revision: kubectl -n %s annotate kustomization %s "+
			"--overwrite %s=%s %s=%s; or add a kustomization.yaml with 'resources: []' at spec.path. Otherwise check "+
			"spec.path, and which files the source ignores", obj.Namespace, obj.Name,
			kustomizev1.AllowEmptyAnnotation, revision, meta.ReconcileRequestAnnotation, revision)
}
