package resourceset_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const gated = `
gates: [{name: release}]
inputsFrom: [{name: tenants}]
resources:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: "x-<< inputs.id >>", namespace: NS}
  data: {size: "<< inputs.size | quote >>"}
`

// pending waits until a ResourceSet waits with numbers of changes, and returns what it waits with.
func (s *harness) pending(name string, created, configured, deleted int32) *meta.Pending {
	s.Helper()
	set := &controlplanev1.ResourceSet{}
	testenv.Eventually(s, name+" waits", func() error {
		if err := s.Get(set, name); err != nil {
			return err
		}
		p := set.Status.Pending
		if p == nil || p.Created != created || p.Configured != configured || p.Deleted != deleted {
			return fmt.Errorf("%+v %+v", p, set.Status.Conditions)
		}
		return nil
	})
	return set.Status.Pending
}

func TestGatesHoldInputs(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Gate("release")
	s.provider("tenants", `[{id: "1", size: 1}]`, nil)
	s.set("apps", gated)
	first := s.pending("apps", 1, 0, 0)
	if err := s.Get(&corev1.ConfigMap{}, "x-1"); !apierrors.IsNotFound(err) {
		t.Errorf("it was applied: %v", err)
	}
	s.TurnGate("release", gatingv1.Opened)
	s.has("x-1", `{"size":"1"}`)
	s.ready("apps")
	s.TurnGate("release", gatingv1.Closed)

	t.Log("changed inputs wait, and drift is corrected meanwhile")
	s.export("tenants", `[{id: "1", size: 2}, {id: "2", size: 1}]`)
	second := s.pending("apps", 1, 1, 0)
	if second.Revision == first.Revision || !strings.Contains(second.Diff, "size") {
		t.Errorf("pending %+v after %+v", second, first)
	}
	s.export("tenants", `[{id: "1", size: 1}]`)
	s.ready("apps")
	s.Patch(&corev1.ConfigMap{}, "x-1", `{"data":{"size":"9"}}`)
	s.has("x-1", `{"size":"1"}`)

	t.Log("an approval is for the inputs that were seen")
	s.export("tenants", `[{id: "2", size: 1}]`)
	seen := s.pending("apps", 1, 0, 1)
	s.TurnGate("release", gatingv1.Opened, seen.Revision)
	s.Gone(&corev1.ConfigMap{}, "x-1")
	s.has("x-2", `{"size":"1"}`)
	s.ready("apps")
	s.export("tenants", `[]`)
	s.pending("apps", 0, 0, 1)
}

// TestRulesSeeInputs has a gate whose rule is about the objects that inputs make.
func TestRulesSeeInputs(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Create(&gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "release"},
		Spec: gatingv1.GateSpec{Interval: meta.Duration{Duration: time.Hour}, Default: gatingv1.Opened,
			Rules: []gatingv1.Rule{{Name: "keep", Outcome: gatingv1.OutcomeDeny,
				Expression: "size(change.deleted) > 0"}}}})
	s.provider("tenants", `[{id: "1", size: 1}, {id: "2", size: 1}]`, nil)
	set := s.set("apps", gated)
	s.ready("apps")
	s.export("tenants", `[{id: "1", size: 1}]`)
	p := s.pending("apps", 0, 0, 1)
	if p.Risk == "" || p.Change == "" {
		t.Errorf("pending %+v", p)
	}
	testenv.Eventually(s, "the rule is named", func() error {
		if err := s.Get(set, "apps"); err != nil {
			return err
		}
		if !strings.Contains(fmt.Sprint(set.Status.Conditions), "denies the change by rule 'keep'") {
			return fmt.Errorf("%+v", set.Status.Conditions)
		}
		return nil
	})
	s.export("tenants", `[{id: "1", size: 1}, {id: "2", size: 1}, {id: "3", size: 1}]`)
	s.has("x-3", `{"size":"1"}`)
	s.ready("apps")
}
