package request

import (
	"fmt"
	"slices"
	"strings"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
)

// MaxGroups is how many groups an approval can name, as the definition of GateApproval bounds them.
const MaxGroups = 100

// ApprovingGroups returns those of a user's groups that may approve a gate, or changes at it; at most [MaxGroups].
func ApprovingGroups(g *gatingv1.Gate, groups []string) []string {
	var out []string
	for _, name := range groups {
		if len(out) < MaxGroups && slices.ContainsFunc(ApprovalRules(g), func(a *gatingv1.Approvals) bool {
			return slices.Contains(a.Groups, name)
		}) {
			out = append(out, name)
		}
	}
	return out
}

// CheckApprover returns why an approval by a user with groups would change nothing at a gate: it needs none, or the
// user is not an approver. It returns nil if the approval may count.
func CheckApprover(g *gatingv1.Gate, user string, groups []string) error {
	rules := ApprovalRules(g)
	if len(rules) == 0 && g.Spec.OnFailure != "" {
		return nil // an approval of a failed revision lets it through
	}
	if len(rules) == 0 {
		return fmt.Errorf("Gate '%s/%s' requires no approvals, so an approval changes nothing. To let changes "+
			"through, run: sluice gate open %s -n %s", g.Namespace, g.Name, g.Name, g.Namespace)
	}
	var who []string
	for _, a := range rules {
		if len(a.Users)+len(a.Groups) == 0 || slices.Contains(a.Users, user) ||
			slices.ContainsFunc(groups, func(name string) bool { return slices.Contains(a.Groups, name) }) {
			return nil
		}
		for _, name := range a.Users {
			who = append(who, "user "+name)
		}
		for _, name := range a.Groups {
			who = append(who, "members of "+name)
		}
	}
	return fmt.Errorf("user '%s' is not an approver of Gate '%s/%s': approvers are %s", user, g.Namespace, g.Name,
		first(who))
}

// first returns the first names of a list, and how many more there are.
func first(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

// ApprovalRules returns the approvals that a gate and its rules require.
func ApprovalRules(g *gatingv1.Gate) []*gatingv1.Approvals {
	rules := []*gatingv1.Approvals{}
	if g.Spec.Approvals != nil {
		rules = append(rules, g.Spec.Approvals)
	}
	for _, r := range g.Spec.Rules {
		if r.Approvals != nil {
			rules = append(rules, r.Approvals)
		}
	}
	return rules
}
