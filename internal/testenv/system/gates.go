package system

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// Gate creates a closed gate.
func (s *System) Gate(name string, change ...func(*gatingv1.Gate)) {
	s.Helper()
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: gatingv1.GateSpec{Interval: meta.Duration{Duration: time.Minute}, Default: gatingv1.Closed}}
	for _, c := range change {
		c(g)
	}
	s.Create(g)
	s.TurnGate(name, gatingv1.Closed)
}

// TurnGate opens or closes a gate by request and waits until it is. With a revision, it opens for that revision only.
func (s *System) TurnGate(name string, state gatingv1.State, revision ...string) {
	s.Helper()
	verb, status := gatingv1.ClosePrefix, metav1.ConditionFalse
	if state == gatingv1.Opened {
		verb, status = gatingv1.OpenPrefix, metav1.ConditionTrue
	}
	at := time.Now().UTC()
	annotations := map[string]any{verb + gatingv1.RequestedAtSuffix: at.Format(time.RFC3339Nano),
		gatingv1.OpenRevisionAnnotation: nil}
	if len(revision) > 0 {
		annotations[gatingv1.OpenRevisionAnnotation] = revision[0]
	}
	s.AnnotateGate(name, annotations)
	s.eventually(name+" is "+string(state), func() error {
		g := &gatingv1.Gate{}
		if err := s.Get(g, name); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionPresentAndEqual(g.Status.Conditions, gatingv1.OpenedCondition, status) ||
			!slices.Equal(g.Status.ApprovedRevisions, revision) {
			return fmt.Errorf("%+v", g.Status)
		}
		return nil
	})
}

// WatchingGate creates a gate that is open, and watches what it lets through for an hour.
func (s *System) WatchingGate(name string, onFailure gatingv1.OnFailure) {
	s.Helper()
	s.Create(&gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: gatingv1.GateSpec{Interval: meta.Duration{Duration: time.Minute}, Default: gatingv1.Opened,
			OnFailure: onFailure, Soak: &meta.Duration{Duration: time.Hour}}})
	s.GateOpened(name, metav1.ConditionTrue, "Gate opened by default")
}

// GateOpened waits until a gate is open or not, with a message that contains a text.
func (s *System) GateOpened(name string, status metav1.ConditionStatus, text string) *gatingv1.Gate {
	s.Helper()
	g := &gatingv1.Gate{}
	s.eventually(fmt.Sprintf("%s is opened: %s", name, status), func() error {
		if err := s.Get(g, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(g.Status.Conditions, gatingv1.OpenedCondition)
		if c == nil || c.Status != status || !strings.Contains(c.Message, text) {
			return fmt.Errorf("%+v; failures %+v", c, g.Status.Failures)
		}
		return nil
	})
	return g
}

// AnnotateGate sets annotations of a gate.
func (s *System) AnnotateGate(name string, annotations map[string]any) {
	s.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		s.Fatal(err)
	}
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
	if err := s.Client.Patch(s.Context(), g, client.RawPatch(types.MergePatchType, patch)); err != nil {
		s.Fatal(err)
	}
}

// GateRefs returns references to gates.
func GateRefs(gates ...string) []meta.GateReference {
	var refs []meta.GateReference
	for _, g := range gates {
		refs = append(refs, meta.GateReference{Name: g})
	}
	return refs
}
