package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/model/lineage"
	"github.com/sluice-gitops/sluice/internal/ui/state"
)

// treeCommand is `sluice tree` for one kind.
type treeCommand struct {
	*env
	kind    *kind.Kind
	compact bool
	output  string
}

func newTreeCommand(e *env) *cobra.Command {
	c := newGroup("tree", "Show the objects that an object made, as a tree", `  sluice tree kustomization app
  sluice tree artifact generator app`)
	e.addPerKind(c, func(k *kind.Kind) *cobra.Command {
		if !k.HasInventory {
			return nil
		}
		t := &treeCommand{env: e, kind: k}
		sub := &cobra.Command{
			Use:     k.Words[0] + " NAME",
			Aliases: k.Words[1:],
			Short:   "Show the objects that " + k.WithArticle() + " made, as a tree",
			Example: fmt.Sprintf("  sluice tree %s NAME\n  sluice tree %s NAME -o json", k.Path(), k.Path()),
			Args:    exactlyOne,
			RunE:    e.bounded(func(ctx context.Context, args []string) error { return t.run(ctx, args[0]) }),
		}
		if k.Name() == kustomizev1.KustomizationKind || k.Name() == helmv2.HelmReleaseKind {
			sub.Flags().BoolVar(&t.compact, "compact", false, "show only objects of Sluice and Flux")
		}
		addOutput(sub, sub.Flags(), &t.output, machineFormats...)
		return sub
	})
	return c
}

func (t *treeCommand) run(ctx context.Context, name string) error {
	if err := optionalOneOf("output", t.output, machineFormats...); err != nil {
		return err
	}
	c, err := t.Client()
	if err != nil {
		return err
	}
	obj, err := cluster.Get(ctx, c, t.kind, t.key(name))
	if err != nil {
		return err
	}
	tree, err := state.ReadTree(ctx, c, obj, t.compact, true)
	if err != nil {
		return cluster.WithHint(err)
	}
	top := tree.Top.Lineage()
	if t.output != "" {
		return t.printAs(t.output, top)
	}
	for _, line := range top.Lines() {
		if t.Out.IsTerminal() {
			line = term.Cut(line, t.Out.Width())
		}
		if _, err := fmt.Fprintln(t.Out, line); err != nil {
			return err
		}
	}
	for _, d := range lineage.Dependencies(obj) {
		t.Step("depends on %s/%s/%s", d.Kind, d.Namespace, d.Name)
	}
	if tree.Omitted > 0 {
		t.Step("%d of %d objects are not shown", tree.Omitted, tree.Total)
	}
	return nil
}
