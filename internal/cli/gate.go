package cli

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// gateOwner is how the command names itself to the API server, which a gate's history shows.
const gateOwner = client.FieldOwner("sluice-gate")

func (a *app) gate() *cobra.Command {
	c := group("gate", "Open, close and approve gates, and show who waits", `  sluice gate list -A
  sluice gate status release
  sluice gate open release --for 2h`)
	c.AddCommand(a.gateList(), a.gateStatus(), a.gateHistory(), a.gateOpen(), a.gateClose(), a.gateApprove(),
		a.gateExport(), a.gateDelete())
	for _, sub := range c.Commands() {
		sub.ValidArgsFunction = a.completeNames(byTitle(gatingv1.GateKind))
	}
	c.AddCommand(a.gateCreate())
	return c
}

// gateCreate, gateExport and gateDelete are what these verbs do for all kinds, under the name where people
// look for them.
func (a *app) gateCreate() *cobra.Command {
	var o createOptions
	c := a.createKind(byTitle(gatingv1.GateKind), &o)
	o.bind(c.Flags())
	return asGate(c, "create NAME")
}

func (a *app) gateExport() *cobra.Command {
	var all bool
	c := a.exportOf(byTitle(gatingv1.GateKind), &all)
	c.Flags().BoolVar(&all, "all", false, "all gates of the namespace")
	return asGate(c, "export NAME...")
}

func (a *app) gateDelete() *cobra.Command {
	var silent bool
	c := a.deleteOf(byTitle(gatingv1.GateKind), &silent)
	c.Flags().BoolVarP(&silent, "silent", "s", false, "do not ask")
	return asGate(c, "delete NAME")
}

// asGate turns a verb's command for gates into that of `sluice gate`.
func asGate(c *cobra.Command, use string) *cobra.Command {
	verb, _, _ := strings.Cut(use, " ")
	c.Use, c.Aliases = use, nil
	c.Example = strings.ReplaceAll(c.Example, "sluice "+verb+" gate", "sluice gate "+verb)
	return c
}

// gateRequest is what somebody asks of a gate.
type gateRequest struct {
	prefix           string
	window           time.Duration
	revision, reason string
}

func (a *app) gateOpen() *cobra.Command {
	r := gateRequest{prefix: gatingv1.OpenPrefix}
	var override bool
	c := &cobra.Command{
		Use: "open NAME", Short: "Open a gate", Args: exactlyOne,
		Long: `Open a gate for its window, or for --for instead; without either until it is asked to close.

--override opens it whatever its schedule, approvals and checks say. It takes the right to "override" gates and a reason.`,
		Example: `  sluice gate open release --for 2h
  sluice gate open release --revision main@sha1:4f170ec8a9c1d3a1b5b0f5c5a9e4d5c6b7a8f901
  sluice gate open release --override --reason "the shop is down"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if override {
				r.prefix = gatingv1.OverridePrefix
				if strings.TrimSpace(r.reason) == "" {
					return usagef("--override takes a --reason")
				}
			}
			return a.ask(cmd, args[0], r)
		},
	}
	c.Flags().DurationVar(&r.window, "for", 0, "how long, instead of the gate's window")
	c.Flags().StringVar(&r.revision, "revision", "", "let only this revision through")
	c.Flags().StringVar(&r.reason, "reason", "", "why, for the record")
	c.Flags().BoolVar(&override, "override", false, "break the glass")
	return c
}

func (a *app) gateClose() *cobra.Command {
	r := gateRequest{prefix: gatingv1.ClosePrefix}
	c := &cobra.Command{
		Use: "close NAME", Short: "Close a gate", Args: exactlyOne,
		Example: "  sluice gate close release --reason freeze",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.ask(cmd, args[0], r) },
	}
	c.Flags().DurationVar(&r.window, "for", 0,
		"how long a gate that is opened by default stays closed, instead of its window")
	c.Flags().StringVar(&r.reason, "reason", "", "why, for the record")
	return c
}

// ask writes a request to a gate's annotations, in place of the last one of the same verb.
func (a *app) ask(cmd *cobra.Command, name string, r gateRequest) error {
	if cmd.Flags().Changed("for") && r.window <= 0 {
		return usagef("--for must be more than nothing")
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
	defer cancel()
	c, err := a.client()
	if err != nil {
		return err
	}
	g, err := a.fetchGate(ctx, c, name)
	if err != nil {
		return err
	}
	user, err := a.self(ctx)
	if err != nil {
		return err
	}
	before := g.DeepCopy()
	if g.Annotations == nil {
		g.Annotations = map[string]string{}
	}
	maps.DeleteFunc(g.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, r.prefix) })
	at := time.Now().UTC().Format(time.RFC3339Nano)
	g.Annotations[r.prefix+gatingv1.RequestedAtSuffix] = at
	g.Annotations[r.prefix+gatingv1.RequestedBySuffix] = at + " " + user
	if r.window > 0 {
		g.Annotations[r.prefix+gatingv1.WindowSuffix] = r.window.String()
	}
	if r.revision != "" {
		g.Annotations[r.prefix+gatingv1.RevisionSuffix] = r.revision
	}
	if r.reason != "" {
		g.Annotations[r.prefix+gatingv1.ReasonSuffix] = r.reason
	}
	if err := c.Patch(ctx, g, client.MergeFrom(before), gateOwner); err != nil {
		return explain(fmt.Sprintf("cannot %s Gate '%s'", cmd.Name(), client.ObjectKeyFromObject(g)), err)
	}
	a.done("asked Gate '%s' to %s; sluice gate status %s shows what it makes of it", client.ObjectKeyFromObject(g),
		cmd.Name(), name)
	return nil
}

func (a *app) gateApprove() *cobra.Command {
	var revision, comment string
	var expires time.Duration
	var groups []string
	c := &cobra.Command{
		Use: "approve NAME", Short: "Approve what a gate holds, as oneself", Args: exactlyOne,
		Example: "  sluice gate approve release --expires 24h\n  sluice gate approve release --group managers",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("expires") && expires <= 0 {
				return usagef("--expires must be more than nothing")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			defer cancel()
			c, err := a.client()
			if err != nil {
				return err
			}
			g, err := a.fetchGate(ctx, c, args[0])
			if err != nil {
				return err
			}
			user, err := a.self(ctx)
			if err != nil {
				return err
			}
			approval := &gatingv1.GateApproval{
				ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, GenerateName: g.Name + "-"},
				Spec: gatingv1.GateApprovalSpec{
					GateRef: meta.LocalObjectReference{Name: g.Name}, User: user, Groups: groups, Revision: revision,
					Comment: comment,
				},
			}
			if expires > 0 {
				approval.Spec.ExpiresAt = &metav1.Time{Time: time.Now().Add(expires)}
			}
			if err := c.Create(ctx, approval, gateOwner); err != nil {
				return explain(fmt.Sprintf("cannot approve Gate '%s'", client.ObjectKeyFromObject(g)), err)
			}
			a.done("GateApproval '%s' made by %s", client.ObjectKeyFromObject(approval), user)
			return nil
		},
	}
	c.Flags().StringVar(&revision, "revision", "", "approve only this revision")
	c.Flags().DurationVar(&expires, "expires", 0, "how long the approval counts")
	c.Flags().StringSliceVar(&groups, "group", nil, "group to approve as a member of")
	c.Flags().StringVar(&comment, "comment", "", "comment for the record")
	return c
}

func (a *app) fetchGate(ctx context.Context, c client.Client, name string) (*gatingv1.Gate, error) {
	obj, err := fetch(ctx, c, byTitle(gatingv1.GateKind), types.NamespacedName{Namespace: a.namespace(), Name: name})
	if err != nil {
		return nil, err
	}
	return obj.(*gatingv1.Gate), nil
}

// self asks the API server who we are to it.
func (a *app) self(ctx context.Context) (string, error) {
	cfg, err := a.config()
	if err != nil {
		return "", err
	}
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return "", err
	}
	review, err := c.AuthenticationV1().SelfSubjectReviews().
		Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", explain("cannot tell who you are", err)
	}
	return review.Status.UserInfo.Username, nil
}
