package cli

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/gate/request"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// gateApproval is `sluice gate approve`.
type gateApproval struct {
	*env
	revision, comment string
	expires           time.Duration
	groups, changes   []string
}

func newGateApproveCommand(e *env) *cobra.Command {
	a := &gateApproval{env: e}
	c := &cobra.Command{
		Use: "approve NAME", Short: "Approve what a gate holds, in your name", Args: exactlyOne,
		Long: `Approve what a gate holds, in your name. If rules of the gate require
approvals, the approval names the changes that wait now: those of --change, or
else all, as "sluice gate status" shows them. Each 100 changes need a
GateApproval of their own, which the command creates.`,
		Example: `  sluice gate approve release --expires 24h
  sluice gate approve release --group managers
  sluice gate approve release --change sha256:6a1f…`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("expires") && a.expires <= 0 {
				return usagef("--expires must be greater than 0")
			}
			for _, change := range a.changes {
				if !changeDigest.MatchString(change) {
					return usagef("--change %q: use the digest that sluice gate status shows, sha256: and 64 digits",
						change)
				}
			}
			ctx, cancel := e.WithTimeout(cmd.Context())
			defer cancel()
			return a.run(ctx, args[0])
		},
	}
	c.Flags().StringVar(&a.revision, "revision", "", "approve only this revision")
	c.Flags().StringSliceVar(&a.changes, "change", nil, "approve only this change, by its digest")
	c.Flags().DurationVar(&a.expires, "expires", 0, "how long the approval is valid")
	c.Flags().StringSliceVar(&a.groups, "group", nil, "group whose membership you approve with "+
		"(default: those of your groups that may approve)")
	c.Flags().StringVar(&a.comment, "comment", "", "comment to record")
	return c
}

var changeDigest = regexp.MustCompile("^sha256:[0-9a-f]{64}$")

func (a *gateApproval) run(ctx context.Context, name string) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	g, err := getGate(ctx, a.env, c, name)
	if err != nil {
		return err
	}
	user, err := a.User(ctx)
	if err != nil {
		return err
	}
	if a.groups == nil {
		a.groups = request.ApprovingGroups(g, user.Groups)
	}
	if err := request.CheckApprover(g, user.Username, a.groups); err != nil {
		return err
	}
	changes, err := a.waitingChanges(ctx, c, g)
	if err != nil {
		return err
	}
	approvals, err := request.Approval{User: user.Username, Groups: a.groups, Revision: a.revision, Comment: a.comment,
		Expires: a.expires, Changes: changes}.Objects(g, time.Now())
	if err != nil {
		return err
	}
	for n, approval := range approvals {
		if err := c.Create(ctx, approval, gateFieldOwner); err != nil {
			return cluster.Explain(fmt.Sprintf("cannot approve Gate '%s' (%d of %d GateApprovals were created)",
				client.ObjectKeyFromObject(g), n, len(approvals)), err)
		}
	}
	return a.report(ctx, c, g, approvals)
}

// waitingChanges returns the changes to approve. It returns none if the gate lists all changes that wait.
func (a *gateApproval) waitingChanges(ctx context.Context, c client.Client, g *gatingv1.Gate) ([]string, error) {
	if len(a.changes) > 0 && !request.RequiresChanges(g) {
		return nil, fmt.Errorf("no rule of Gate '%s' requires approvals of single changes: use --revision instead of "+
			"--change", client.ObjectKeyFromObject(g))
	}
	if len(a.changes) > 0 || !request.RequiresChanges(g) || g.Status.WaitingCount <= int64(len(g.Status.Waiting)) {
		return a.changes, nil
	}
	var changes []string
	for _, list := range []client.ObjectList{&kustomizev1.KustomizationList{}, &helmv2.HelmReleaseList{}} {
		err := c.List(ctx, list)
		if apierrors.IsForbidden(err) {
			a.Warn("you may not list all objects that wait: only the %d that the gate lists are approved",
				len(g.Status.Waiting))
			return nil, nil
		}
		if err != nil {
			return nil, cluster.Explain("cannot list the objects that wait", err)
		}
		switch list := list.(type) {
		case *kustomizev1.KustomizationList:
			for n := range list.Items {
				changes = append(changes, a.changeOf(&list.Items[n], g)...)
			}
		case *helmv2.HelmReleaseList:
			for n := range list.Items {
				changes = append(changes, a.changeOf(&list.Items[n], g)...)
			}
		}
	}
	return changes, nil
}

// changeOf returns the change of an object that waits at a gate with the revision to approve; nil for other objects.
func (a *gateApproval) changeOf(o reconcile.Gated, g *gatingv1.Gate) []string {
	p := o.Held().Pending
	if p == nil || p.Change == "" || !request.IsOf(p.Revision, a.revision) || cluster.HeldCondition(o) == nil ||
		!slices.Contains(o.Held().Gates, client.ObjectKeyFromObject(g).String()) {
		return nil
	}
	return []string{p.Change}
}

// report prints what came of an approval, or returns an error if it does not count.
func (a *gateApproval) report(ctx context.Context, c client.Client, g *gatingv1.Gate,
	created []*gatingv1.GateApproval) error {
	approval := created[len(created)-1]
	var observed gatingv1.ObservedApproval
	evaluated, err := awaitGate(ctx, c, g, func() bool {
		i := slices.IndexFunc(g.Status.Approvals,
			func(o gatingv1.ObservedApproval) bool { return o.Name == approval.Name })
		if i >= 0 {
			observed = g.Status.Approvals[i]
		}
		return i >= 0
	})
	recorded := fmt.Sprintf("GateApproval '%s' created for user %s", client.ObjectKeyFromObject(approval),
		approval.Spec.User)
	if len(created) > 1 {
		recorded = fmt.Sprintf("%d GateApprovals created for user %s, the last is '%s'", len(created),
			approval.Spec.User, client.ObjectKeyFromObject(approval))
	}
	switch {
	case err != nil:
		return err
	case !evaluated:
		a.notEvaluated(recorded, g)
		return nil
	case !observed.Counts:
		return fmt.Errorf("%s, but it does not count: %s", recorded, term.OneLine(observed.Message))
	case len(approval.Spec.Changes) > 0:
		enough, all := enoughApprovals(g, created)
		a.Done("%s. %d of %d changes have enough approvals", recorded, enough, all)
	case !isOpen(g):
		a.Done("%s. Gate '%s' is still closed: %s", recorded, client.ObjectKeyFromObject(g), why(g))
	default:
		a.Done("%s. %s", recorded, describeGate(g, time.Now()))
	}
	waits := func(w gatingv1.WaitingObject) bool { return strings.HasSuffix(w.Revision, approval.Spec.Revision) }
	if approval.Spec.Revision != "" && len(g.Status.Waiting) > 0 && !slices.ContainsFunc(g.Status.Waiting, waits) {
		a.Warn("no object waits for revision %s at this gate", approval.Spec.Revision)
	}
	return nil
}

// enoughApprovals returns how many changes of the approvals have as many as the rules require, and how many they name.
func enoughApprovals(g *gatingv1.Gate, created []*gatingv1.GateApproval) (enough, all int) {
	approved := map[string]bool{}
	for _, c := range g.Status.ApprovedChanges {
		approved[c.Change] = true
	}
	for _, approval := range created {
		for _, change := range approval.Spec.Changes {
			if all++; approved[change] {
				enough++
			}
		}
	}
	return enough, all
}
