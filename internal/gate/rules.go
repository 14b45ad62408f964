package gate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/gate/request"
	"github.com/sluice-gitops/sluice/internal/gate/ruling"
	"github.com/sluice-gitops/sluice/internal/gate/verdict"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
)

// Judge implements [reconcile.Gatekeeper].
func (x *Index) Judge(g decision.Gate, obj reconcile.Gated, c reconcile.Change) decision.Ruling {
	change, ok := c.(*risk.Change)
	if !ok {
		return decision.Undecided(decision.NotAboutObjects, "")
	}
	rules, err := x.compiled(g.Gate)
	return rulingOf(context.Background(), rules, err, obj, change) // the deadline is that of the rules
}

// Judge returns what the rules of a gate say about a change of an object, without an index.
func Judge(ctx context.Context, g *gatingv1.Gate, obj reconcile.Gated, c *risk.Change) decision.Ruling {
	rules, err := ruling.Compile(g.Spec.Rules)
	return rulingOf(ctx, rules, err, obj, c)
}

// rulingOf asks compiled rules about a change. invalid is why they could not be compiled.
func rulingOf(ctx context.Context, rules *ruling.Rules, invalid error, obj reconcile.Gated,
	c *risk.Change) decision.Ruling {
	if invalid != nil {
		return decision.Undecided(decision.RulesFailed, invalid.Error())
	}
	rule, err := rules.Of(ctx, c, ruling.Asker{Kind: c.Owner.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		Labels: obj.GetLabels()})
	if err != nil {
		return decision.Undecided(decision.RulesFailed, err.Error())
	}
	return decision.Ruling{Asked: true, Rule: rule, Digest: c.Digest()}
}

// maxApprovedChanges bounds how many approved changes a status lists.
const maxApprovedChanges = 1000

// approvedChanges returns the changes that have the approvals which the rules of a gate require, and when the first of
// them expires. Approvals before the gate was closed do not count.
func approvedChanges(g *gatingv1.Gate, in verdict.Input, closed, now time.Time) (all []gatingv1.ApprovedChange,
	review time.Time) {
	for _, r := range g.Spec.Rules {
		if r.Approvals == nil {
			continue
		}
		for _, c := range ruleOf(r.Approvals, in.Window).Changes(in.Approvals, closed, now) {
			review = earliest(review, c.Until)
			all = append(all, gatingv1.ApprovedChange{Rule: r.Name, Change: c.Digest, Until: timeOrNil(c.Until)})
		}
	}
	return all, review
}

// bounded returns at most as many approved changes as a status lists. If there are too many, those that wait come
// first.
func (c *Controller) bounded(g *gatingv1.Gate, all []gatingv1.ApprovedChange) []gatingv1.ApprovedChange {
	if len(all) <= maxApprovedChanges {
		return all
	}
	waits := map[string]bool{}
	waiting, _ := c.Waiting(client.ObjectKeyFromObject(g), math.MaxInt)
	for _, w := range waiting {
		waits[w.Change] = true
	}
	slices.SortStableFunc(all, func(a, b gatingv1.ApprovedChange) int {
		switch {
		case waits[a.Change] == waits[b.Change]:
			return 0
		case waits[a.Change]:
			return -1
		}
		return 1
	})
	return slices.Clip(all[:maxApprovedChanges])
}

// observer returns whose approvals count for the gate or for any of its rules.
func observer(g *gatingv1.Gate, in verdict.Input) verdict.Rule {
	out, anybody := verdict.Rule{ValidFor: in.Window}, false
	for _, a := range request.ApprovalRules(g) {
		anybody = anybody || len(a.Users)+len(a.Groups) == 0
		out.Users, out.Groups = append(out.Users, a.Users...), append(out.Groups, a.Groups...)
	}
	if anybody {
		out.Users, out.Groups = nil, nil
	}
	return out
}

// changesOf returns a text that differs if the approved changes do.
func changesOf(list []gatingv1.ApprovedChange) string {
	var text strings.Builder
	for _, c := range list {
		fmt.Fprintf(&text, "%s %s %v\n", c.Rule, c.Change, c.Until)
	}
	return text.String()
}
