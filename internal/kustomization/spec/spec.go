// Package spec converts the spec of a Kustomization to the requests of the packages that implement it. The controller
// and the command line both use it, so that their builds are the same. It does not import a controller.
package spec

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Request returns the build request of a Kustomization without the tree, keys and variables, which the caller adds.
// Errors are faults with reason BuildFailed.
func Request(obj *kustomizev1.Kustomization) (build.Request, error) {
	if err := checkName(obj.Name); err != nil {
		return build.Request{}, err
	}
	req := build.Request{
		Path:                    obj.Spec.Path,
		TargetNamespace:         obj.Spec.TargetNamespace,
		NamePrefix:              obj.Spec.NamePrefix,
		NameSuffix:              obj.Spec.NameSuffix,
		Components:              obj.Spec.Components,
		IgnoreMissingComponents: obj.Spec.IgnoreMissingComponents,
	}
	if m := obj.Spec.CommonMetadata; m != nil {
		req.Labels, req.Annotations = m.Labels, m.Annotations
	}
	for _, o := range obj.Spec.BuildMetadata {
		req.BuildMetadata = append(req.BuildMetadata, string(o))
	}
	for _, i := range obj.Spec.Images {
		req.Images = append(req.Images, types.Image{Name: i.Name, NewName: i.NewName, NewTag: i.NewTag,
			Digest: i.Digest})
	}
	for _, p := range obj.Spec.Patches {
		req.Patches = append(req.Patches, types.Patch{Patch: p.Patch, Target: selector(p.Target)})
	}
	// Legacy fields with patches.
	for _, p := range obj.Spec.PatchesStrategicMerge {
		req.Patches = append(req.Patches, types.Patch{Patch: string(p.Raw)})
	}
	for _, p := range obj.Spec.PatchesJSON6902 {
		operations, err := json.Marshal(p.Patch)
		if err != nil {
			return req, fault.New(meta.BuildFailedReason, "spec.patchesJson6902 is invalid").Because(err).Final()
		}
		req.Patches = append(req.Patches, types.Patch{Patch: string(operations), Target: selector(&p.Target)})
	}
	return req, nil
}

// checkName refuses a name that cannot be a label. The API server would refuse each object.
func checkName(name string) error {
	if n := len(name); n > content.LabelValueMaxLength {
		return fault.New(meta.BuildFailedReason, "the name of the Kustomization has %d characters, and every object "+
			"that it applies has the name as a label, which may have %d", n, content.LabelValueMaxLength).
			WithHint("Create it under a shorter name, and delete this one").Final()
	}
	return nil
}

func selector(s *meta.Selector) *types.Selector {
	if s == nil {
		return nil
	}
	return &types.Selector{
		ResId: resid.ResId{
			Gvk:  resid.Gvk{Group: s.Group, Version: s.Version, Kind: s.Kind},
			Name: s.Name, Namespace: s.Namespace,
		},
		AnnotationSelector: s.AnnotationSelector,
		LabelSelector:      s.LabelSelector,
	}
}
