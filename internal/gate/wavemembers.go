package gate

import (
	"cmp"
	"fmt"
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/gate/waves"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// maxProblem bounds the problems of objects in messages, in characters.
const maxProblem = 200

// sourceKey identifies the objects that waves order among each other: those of a kind with the same source.
type sourceKey struct{ kind, source string }

// sourceOf returns the key of an object. It is false for kinds that waves do not order.
func sourceOf(obj reconcile.Gated) (sourceKey, bool) {
	name := func(kind, namespace, name string) string {
		return kind + "/" + cmp.Or(namespace, obj.GetNamespace()) + "/" + name
	}
	switch o := obj.(type) {
	case *kustomizev1.Kustomization:
		s := o.Spec.SourceRef
		return sourceKey{kind: kustomizev1.KustomizationKind, source: name(s.Kind, s.Namespace, s.Name)}, true
	case *helmv2.HelmRelease:
		key := sourceKey{kind: helmv2.HelmReleaseKind}
		if r := o.Spec.ChartRef; r != nil {
			key.source = name(r.Kind, r.Namespace, r.Name)
		} else if o.Spec.Chart != nil && o.Spec.Chart.Spec.SourceRef != nil {
			c := o.Spec.Chart.Spec
			key.source = name(c.SourceRef.Kind, c.SourceRef.Namespace, c.SourceRef.Name) + " " + c.Chart
		}
		return key, true
	}
	return sourceKey{}, false
}

// triedBy returns the revision that an object tried to apply last.
func triedBy(obj reconcile.Gated) string {
	switch o := obj.(type) {
	case *kustomizev1.Kustomization:
		return o.Status.LastAttemptedRevision
	case *helmv2.HelmRelease:
		return o.Status.LastAttemptedRevision
	}
	return ""
}

// wavesOf returns the waves of a gate, with a last one for the objects that none selects.
func wavesOf(g *gatingv1.Gate) (all []waves.Wave, selectors []labels.Selector, err error) {
	for i := range g.Spec.Waves {
		w := &g.Spec.Waves[i]
		s, err := metav1.LabelSelectorAsSelector(&w.Selector)
		if err != nil {
			return nil, nil, fault.New(gatingv1.InvalidWavesReason, "the selector of wave '%s' is invalid", w.Name).
				Because(err).Final()
		}
		wave := waves.Wave{Name: w.Name, Max: w.MaxConcurrent}
		if w.Soak != nil {
			wave.Soak = max(w.Soak.Duration, 0)
		}
		all, selectors = append(all, wave), append(selectors, s)
	}
	if len(all) > 0 {
		all = append(all, waves.Wave{})
	}
	return all, selectors, nil
}

// waveOf returns the index of the first wave that selects an object, or of the last wave.
func waveOf(selectors []labels.Selector, obj reconcile.Gated) int {
	set := labels.Set(obj.GetLabels())
	if i := slices.IndexFunc(selectors, func(s labels.Selector) bool { return s.Matches(set) }); i >= 0 {
		return i
	}
	return len(selectors)
}

// memberOf returns an object as a member of waves, except for its wave. What gates let through is taken from sealed
// fields only, so that other fields of the status can make an object count as not Ready, but not as Ready.
func (x *Index) memberOf(ref reconcile.Ref, obj reconcile.Gated) waves.Member {
	m := waves.Member{ID: ref.NamespacedName.String() + " " + ref.Kind, Tried: triedBy(obj),
		Name: ref.Kind + " '" + ref.NamespacedName.String() + "'", IsSuspended: obj.Schedule().Suspended}
	ready := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, reconcile.TypeReady)
	if a := reconcile.SealedAdmitted(x.Seals, ref.GroupKind, obj); a != nil {
		m.Has = a.Revision
		m.Ready = a.Generation == obj.GetGeneration() && a.ReadyAt != nil && a.Failure == nil && reconcile.IsReady(obj)
		if m.Ready {
			m.Identity = fmt.Sprint(obj.GetUID(), a.Revision, a.Generation, a.ReadyAt, ready.LastTransitionTime.Unix())
		}
	}
	switch {
	case m.IsSuspended:
		m.Problem = "is suspended"
	case m.Ready:
	case ready != nil && ready.Status == metav1.ConditionFalse && ready.ObservedGeneration == obj.GetGeneration():
		m.Failed, m.Problem = true, "is not Ready: "+excerpt.Line(ready.Message, maxProblem)
	}
	return m
}

// waitsAtOthers returns what an object waits for at other gates than this one; empty if it does not wait, or also at
// this one.
func waitsAtOthers(obj reconcile.Gated, gate types.NamespacedName) string {
	approved := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, meta.ApprovedCondition)
	if approved == nil || approved.Status != metav1.ConditionFalse || slices.ContainsFunc(obj.Held().HeldBy,
		func(by meta.HoldingGate) bool { return by.Gate == gate.String() }) {
		return ""
	}
	return "waits: " + excerpt.Line(approved.Message, maxProblem)
}
