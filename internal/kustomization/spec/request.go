// Package spec says what a Kustomization declares in the words of the packages that do it. The controller and
// the command line build and compare by it, so that both come to the same.
package spec

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Request returns the build that the spec asks for, but for the tree, keys and variables, which others bring.
// Errors are faults of reason BuildFailed.
func Request(obj *kustomizev1.Kustomization) (build.Request, error) {
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

// Ignored translates spec.ignore and spec.driftDetection.ignore: the latter hold as long as an object is
// declared as it was. Errors are faults of reason ReconciliationFailed.
func Ignored(obj *kustomizev1.Kustomization) ([]apply.Ignored, error) {
	rules, err := ignored(obj.Spec.Ignore, "spec.ignore")
	if err != nil || obj.Spec.DriftDetection == nil {
		return rules, err
	}
	more, err := ignored(obj.Spec.DriftDetection.Ignore, "spec.driftDetection.ignore")
	for i := range more {
		more[i].DriftOnly = true
	}
	return append(rules, more...), err
}

func ignored(rules []meta.IgnoreRule, field string) ([]apply.Ignored, error) {
	var out []apply.Ignored
	for _, rule := range rules {
		for _, p := range rule.Paths {
			if !strings.HasPrefix(p, "/") || p == "/" {
				return nil, fault.New(meta.ReconciliationFailedReason, "the path '%s' of %s is no JSON pointer",
					p, field).
					WithHint("Write it as /spec/replicas (RFC 6901)").Final()
			}
		}
		matches, err := matcher(rule.Target)
		if err != nil {
			return nil, fault.New(meta.ReconciliationFailedReason, "the target of %s cannot be read", field).
				Because(err).Final()
		}
		out = append(out, apply.Ignored{Matches: matches, Paths: rule.Paths})
	}
	return out, nil
}

// matcher tells which objects a selector means; all when there is none.
func matcher(s *meta.Selector) (func(*unstructured.Unstructured) bool, error) {
	if s == nil {
		return func(*unstructured.Unstructured) bool { return true }, nil
	}
	byName, err := types.NewSelectorRegex(selector(s))
	if err != nil {
		return nil, err
	}
	byLabel, err := labels.Parse(s.LabelSelector)
	if err != nil {
		return nil, err
	}
	byAnnotation, err := labels.Parse(s.AnnotationSelector)
	if err != nil {
		return nil, err
	}
	return func(o *unstructured.Unstructured) bool {
		gvk := o.GroupVersionKind()
		return byName.MatchGvk(resid.Gvk{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}) &&
			byName.MatchName(o.GetName()) && byName.MatchNamespace(o.GetNamespace()) &&
			byLabel.Matches(labels.Set(o.GetLabels())) && byAnnotation.Matches(labels.Set(o.GetAnnotations()))
	}, nil
}
