package sync

import (
	"encoding/json"

	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// request translates the spec into what the build needs.
func (r *run) request(tree *artifact.Tree, in *inputs) (build.Request, error) {
	obj := r.obj
	req := build.Request{
		Tree:                    tree,
		Path:                    obj.Spec.Path,
		TargetNamespace:         obj.Spec.TargetNamespace,
		NamePrefix:              obj.Spec.NamePrefix,
		NameSuffix:              obj.Spec.NameSuffix,
		Components:              obj.Spec.Components,
		IgnoreMissingComponents: obj.Spec.IgnoreMissingComponents,
		Fetch:                   r.Options.FetchBase,
		Decryption:              in.keys,
		Substitution:            in.substitution,
	}
	if m := obj.Spec.CommonMetadata; m != nil {
		req.Labels, req.Annotations = m.Labels, m.Annotations
	}
	for _, o := range obj.Spec.BuildMetadata {
		req.BuildMetadata = append(req.BuildMetadata, string(o))
	}
	for _, i := range obj.Spec.Images {
		req.Images = append(req.Images, types.Image{Name: i.Name, NewName: i.NewName, NewTag: i.NewTag, Digest: i.Digest})
	}
	for _, p := range obj.Spec.Patches {
		req.Patches = append(req.Patches, types.Patch{Patch: p.Patch, Target: selector(p.Target)})
	}
	// The legacy forms say the same in other words.
	for _, p := range obj.Spec.PatchesStrategicMerge {
		req.Patches = append(req.Patches, types.Patch{Patch: string(p.Raw)})
	}
	for _, p := range obj.Spec.PatchesJSON6902 {
		operations, err := json.Marshal(p.Patch)
		if err != nil {
			return req, fault.New(meta.BuildFailedReason, "spec.patchesJson6902 cannot be read").Because(err).Final()
		}
		req.Patches = append(req.Patches, types.Patch{Patch: string(operations), Target: selector(&p.Target)})
	}
	return req, nil
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

// refuse fails closed on fields whose meaning this controller cannot honour: applying without them would be another thing.
func refuse(obj *kustomizev1.Kustomization) error {
	for _, f := range []struct {
		field string
		set   bool
	}{
		{"spec.ignore", len(obj.Spec.Ignore) > 0},
	} {
		if f.set {
			return fault.New(meta.BuildFailedReason, "%s is set, which this version cannot honour", f.field).
				WithHint("Nothing was applied. Remove the field, or use a version of Sluice whose docs list it").Final()
		}
	}
	return nil
}
