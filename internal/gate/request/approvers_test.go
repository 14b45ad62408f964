package request

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
)

func TestCheckApprover(t *testing.T) {
	managers := &gatingv1.Approvals{Required: 2, Groups: []string{"managers"}, Users: []string{"anna"}}
	for name, c := range map[string]struct {
		spec gatingv1.GateSpec
		user string
		in   []string // groups
		want string   // empty: may approve
	}{
		"no approvals":      {user: "anna", want: "requires no approvals, so an approval changes nothing"},
		"names the way":     {user: "anna", want: "sluice gate open release -n apps"},
		"a failed revision": {spec: gatingv1.GateSpec{OnFailure: gatingv1.OnFailureHold}, user: "anna"},
		"anybody":           {spec: gatingv1.GateSpec{Approvals: &gatingv1.Approvals{Required: 1}}, user: "x"},
		"a user":            {spec: gatingv1.GateSpec{Approvals: managers}, user: "anna"},
		"a member":          {spec: gatingv1.GateSpec{Approvals: managers}, user: "x", in: []string{"a", "managers"}},
		"another user": {spec: gatingv1.GateSpec{Approvals: managers}, user: "x", in: []string{"a"},
			want: "user 'x' is not an approver"},
		"says who may": {spec: gatingv1.GateSpec{Approvals: managers}, user: "x",
			want: "user anna, members of managers"},
		"approver of one rule": {spec: gatingv1.GateSpec{Rules: []gatingv1.Rule{{Approvals: managers}}}, user: "anna"},
		"approver of no rule": {spec: gatingv1.GateSpec{Rules: []gatingv1.Rule{{Approvals: managers}}}, user: "x",
			want: "not an approver"},
		"rules without approval": {spec: gatingv1.GateSpec{Rules: []gatingv1.Rule{{}}}, user: "x",
			want: "no approvals"},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "release"}, Spec: c.spec}
			err := CheckApprover(g, c.user, c.in)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
