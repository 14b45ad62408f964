package rollout

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/limits/regex"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// IgnoreRules converts spec.ignore and spec.driftDetection.ignore. The latter apply only while the declaration of an
// object does not change. Errors are faults with reason ReconciliationFailed.
func IgnoreRules(rules []meta.IgnoreRule, drift *meta.DriftDetection) ([]apply.Ignored, error) {
	left := maxMatching
	ignored, err := ignoreRules(rules, "spec.ignore", false, &left)
	if err != nil || drift == nil {
		return ignored, err
	}
	driftOnly, err := ignoreRules(drift.Ignore, "spec.driftDetection.ignore", true, &left)
	return append(ignored, driftOnly...), err
}

// maxMatching bounds the instructions of the regular expressions in all targets of an object, as each target is
// compared with each applied object. A plain name is one instruction.
const maxMatching = 10_000

func ignoreRules(rules []meta.IgnoreRule, field string, driftOnly bool, left *int) ([]apply.Ignored, error) {
	var ignored []apply.Ignored
	for _, rule := range rules {
		for _, p := range rule.Paths {
			if !strings.HasPrefix(p, "/") || p == "/" {
				return nil, fault.New(meta.ReconciliationFailedReason, "path '%s' of %s is not a JSON pointer",
					p, field).
					WithHint("Write it like /spec/replicas (RFC 6901)").Final()
			}
		}
		matches, size, err := matcher(rule.Target)
		if err != nil {
			return nil, fault.New(meta.ReconciliationFailedReason, "the target of %s is invalid", field).
				Because(err).Final()
		}
		if *left -= size; *left < 0 {
			return nil, fault.New(meta.ReconciliationFailedReason, "the targets of %s stand for more than %d "+
				"instructions of regular expressions", field, maxMatching).
				WithHint("Use fewer rules, or names instead of regular expressions").Final()
		}
		ignored = append(ignored, apply.Ignored{Matches: matches, Paths: rule.Paths, DriftOnly: driftOnly})
	}
	return ignored, nil
}

const selectorText = 50 // bytes of a label selector that take as long as an instruction

// matcher returns a function that reports whether a selector selects an object; nil selects all. It also returns about
// how many instructions of regular expressions that takes.
func matcher(s *meta.Selector) (matches func(*unstructured.Unstructured) bool, instructions int, err error) {
	if s == nil {
		return func(*unstructured.Unstructured) bool { return true }, 0, nil
	}
	instructions, err = regex.Size(s.Group, s.Version, s.Kind, s.Name, s.Namespace)
	if err != nil {
		return nil, 0, err
	}
	instructions += len(s.LabelSelector)/selectorText + len(s.AnnotationSelector)/selectorText
	byName, err := types.NewSelectorRegex(&types.Selector{ResId: resid.ResId{
		Gvk:  resid.Gvk{Group: s.Group, Version: s.Version, Kind: s.Kind},
		Name: s.Name, Namespace: s.Namespace,
	}})
	if err != nil {
		return nil, 0, err
	}
	byLabel, err := labels.Parse(s.LabelSelector)
	if err != nil {
		return nil, 0, err
	}
	byAnnotation, err := labels.Parse(s.AnnotationSelector)
	if err != nil {
		return nil, 0, err
	}
	return func(o *unstructured.Unstructured) bool {
		gvk := o.GroupVersionKind()
		return byName.MatchGvk(resid.Gvk{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}) &&
			byName.MatchName(o.GetName()) && byName.MatchNamespace(o.GetNamespace()) &&
			byLabel.Matches(labels.Set(o.GetLabels())) && byAnnotation.Matches(labels.Set(o.GetAnnotations()))
	}, instructions, nil
}
