package reconcile

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
)

func TestReadySaysWhatWaits(t *testing.T) {
	closed := func(gate string, code *decision.Code) meta.HoldingGate {
		return meta.HoldingGate{Gate: gate, Code: code.Name}
	}
	release := closed("apps/release", decision.Closed)
	commit := "main@sha1:b3c0de1f" + strings.Repeat("0", 32)
	for name, c := range map[string]struct {
		status  metav1.ConditionStatus // of Ready
		message string
		closed  []meta.HoldingGate
		pending *meta.Pending
		want    string
	}{
		"one change": {status: metav1.ConditionTrue, message: "applied", closed: []meta.HoldingGate{release},
			pending: &meta.Pending{Revision: commit, Created: 1},
			want:    "applied; waiting at gate 'release' for main@sha1:b3c0de1f (1 change)"},
		"several changes": {status: metav1.ConditionTrue, message: "applied", closed: []meta.HoldingGate{release},
			pending: &meta.Pending{Revision: commit, Created: 1, Configured: 2, Deleted: 3},
			want:    "applied; waiting at gate 'release' for main@sha1:b3c0de1f (6 changes)"},
		"no preview": {status: metav1.ConditionTrue, message: "stored", closed: []meta.HoldingGate{release},
			pending: &meta.Pending{Revision: "v2"}, want: "stored; waiting at gate 'release' for v2"},
		"after a failure": {status: metav1.ConditionFalse, message: "it failed", closed: []meta.HoldingGate{release},
			pending: &meta.Pending{Revision: "v2"}, want: "it failed; waiting at gate 'release' for v2"},
		"again": {status: metav1.ConditionTrue, message: "applied; waiting at gate 'old' for v1",
			closed: []meta.HoldingGate{release}, pending: &meta.Pending{Revision: "v2"},
			want: "applied; waiting at gate 'release' for v2"},
		"no longer": {status: metav1.ConditionTrue, message: "applied; waiting at gate 'old' for v1", want: "applied",
			closed: []meta.HoldingGate{release}},
		"missing gate of another namespace": {status: metav1.ConditionTrue, message: "applied",
			closed:  []meta.HoldingGate{release, closed("ops/freeze", decision.NotFound)},
			pending: &meta.Pending{Revision: "v2"},
			want:    "applied; waiting at gate 'release', 'ops/freeze' (not found) for v2"},
		"many gates": {status: metav1.ConditionTrue, message: "applied",
			closed:  []meta.HoldingGate{release, release, release, release, release},
			pending: &meta.Pending{Revision: "v2"},
			want:    "applied; waiting at gate 'release', 'release', 'release', and 2 more for v2"},
		"nothing was applied yet": {status: metav1.ConditionUnknown, message: "waiting approval",
			closed: []meta.HoldingGate{release}, pending: &meta.Pending{Revision: "v2"}, want: "waiting approval"},
	} {
		k := &kustomizev1.Kustomization{}
		k.Namespace = "apps"
		Mark(k, TypeReady, c.status, "Test", c.message)
		describeWaiting(k, &meta.Held{HeldBy: c.closed, Pending: c.pending})
		if got := k.Status.Conditions[0].Message; got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
