package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/gate/request"
	"github.com/sluice-gitops/sluice/internal/model/kind"
)

// gateFieldOwner is the field manager of requests to gates. The history of a gate shows it.
const gateFieldOwner = client.FieldOwner("sluice-gate")

func gateKind() *kind.Kind { return kind.ByName(gatingv1.GateKind) }

func newGateCommand(e *env) *cobra.Command {
	c := newGroup("gate", "List, open, close and approve gates", `  sluice gate list -A
  sluice gate status release
  sluice gate open release --for 2h`)
	c.AddCommand(newGateListCommand(e), newGateStatusCommand(e), newGateHistoryCommand(e), newGateOpenCommand(e),
		newGateCloseCommand(e), newGateApproveCommand(e), newGateExportCommand(e), newGateDeleteCommand(e))
	for _, sub := range c.Commands() {
		sub.ValidArgsFunction = e.completeNames(gateKind())
	}
	c.AddCommand(newGateCreateCommand(e))
	return c
}

// `sluice gate create`, `export` and `delete` are the same commands as `sluice create gate` and so on.

func newGateCreateCommand(e *env) *cobra.Command {
	var o createOptions
	c := newCreateKindCommand(e, gateKind(), &createGate{}, &o)
	o.bind(c.Flags())
	return asGateCommand(c, "create NAME")
}

func newGateExportCommand(e *env) *cobra.Command {
	var all bool
	c := newExportKindCommand(e, gateKind(), &all)
	c.Flags().BoolVar(&all, "all", false, "all gates in the namespace")
	return asGateCommand(c, "export NAME...")
}

func newGateDeleteCommand(e *env) *cobra.Command {
	var silent bool
	c := newDeleteKindCommand(e, gateKind(), &silent)
	c.Flags().BoolVarP(&silent, "silent", "s", false, "do not ask for confirmation")
	return asGateCommand(c, "delete NAME")
}

// asGateCommand renames `sluice VERB gate` to `sluice gate VERB`.
func asGateCommand(c *cobra.Command, use string) *cobra.Command {
	verb, _, _ := strings.Cut(use, " ")
	c.Use, c.Aliases = use, nil
	c.Example = strings.ReplaceAll(c.Example, "sluice "+verb+" gate", "sluice gate "+verb)
	return c
}

func newGateListCommand(e *env) *cobra.Command {
	var o getOptions
	c := &cobra.Command{
		Use: "list", Short: "List gates", Args: noArgs, Example: "  sluice gate list -A",
		RunE: func(cmd *cobra.Command, args []string) error {
			return runGet(cmd.Context(), e, []*kind.Kind{gateKind()}, args, o)
		},
	}
	c.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "gates in all namespaces")
	return c
}

// gateRequest is `sluice gate open` or `sluice gate close`.
type gateRequest struct {
	*env
	verb             string
	prefix           string // of the annotations
	window           time.Duration
	revision, reason string
	override         bool
}

func newGateOpenCommand(e *env) *cobra.Command {
	r := &gateRequest{env: e, verb: "open", prefix: gatingv1.OpenPrefix}
	c := &cobra.Command{
		Use: "open NAME", Short: "Open a gate", Args: exactlyOne,
		Long: `Open a gate for the duration in --for, or else for its spec.window. Without
either it stays open until someone closes it.

--override opens the gate regardless of its schedule, approvals and checks. It
needs the permission "override" on gates, and a --reason.`,
		Example: `  sluice gate open release --for 2h
  sluice gate open release --revision main@sha1:4f170ec8a9c1d3a1b5b0f5c5a9e4d5c6b7a8f901
  sluice gate open release --override --reason "production is down"`,
		RunE: r.runE,
	}
	c.Flags().DurationVar(&r.window, "for", 0, "how long to open, instead of spec.window")
	c.Flags().StringVar(&r.revision, "revision", "", "let only this revision through")
	c.Flags().StringVar(&r.reason, "reason", "", "reason to record in the history")
	c.Flags().BoolVar(&r.override, "override", false, "ignore schedule, approvals and checks (emergency access)")
	return c
}

func newGateCloseCommand(e *env) *cobra.Command {
	r := &gateRequest{env: e, verb: "close", prefix: gatingv1.ClosePrefix}
	c := &cobra.Command{
		Use: "close NAME", Short: "Close a gate", Args: exactlyOne,
		Example: "  sluice gate close release --reason freeze",
		RunE:    r.runE,
	}
	c.Flags().DurationVar(&r.window, "for", 0, "how long to close a gate that is open by default, instead of "+
		"spec.window")
	c.Flags().StringVar(&r.reason, "reason", "", "reason to record in the history")
	return c
}

func (r *gateRequest) runE(cmd *cobra.Command, args []string) error {
	if cmd.Flags().Changed("for") && r.window <= 0 {
		return usagef("--for must be greater than 0")
	}
	if r.override {
		r.prefix = gatingv1.OverridePrefix
		if strings.TrimSpace(r.reason) == "" {
			return usagef("--override needs a --reason")
		}
	}
	ctx, cancel := r.WithTimeout(cmd.Context())
	defer cancel()
	return r.run(ctx, args[0])
}

// run writes the request into the annotations of the gate. It replaces the last request of the same verb.
func (r *gateRequest) run(ctx context.Context, name string) error {
	c, err := r.Client()
	if err != nil {
		return err
	}
	g, err := getGate(ctx, r.env, c, name)
	if err != nil {
		return err
	}
	user, err := r.Username(ctx)
	if err != nil {
		return err
	}
	before := g.DeepCopy()
	requested := request.Request{Prefix: r.prefix, User: user, Window: r.window, Revision: r.revision,
		Reason: r.reason}.Annotate(g, time.Now())
	if err := c.Patch(ctx, g, client.MergeFrom(before), gateFieldOwner); err != nil {
		return cluster.Explain(fmt.Sprintf("cannot %s Gate '%s'", r.verb, client.ObjectKeyFromObject(g)), err)
	}
	return r.report(ctx, c, g, requested)
}

func getGate(ctx context.Context, e *env, c client.Client, name string) (*gatingv1.Gate, error) {
	obj, err := cluster.Get(ctx, c, gateKind(), e.key(name))
	if err != nil {
		return nil, err
	}
	return obj.(*gatingv1.Gate), nil
}
