package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/offline/localset"
)

// diffResourceSet is `sluice diff resourceset`.
type diffResourceSet struct{ buildResourceSet }

func newDiffResourceSetCommand(e *env) *cobra.Command {
	d := &diffResourceSet{buildResourceSet{env: e}}
	c := newNamedCommand(e, kind.ByName(controlplanev1.ResourceSetKind), &cobra.Command{
		Short: "Show what an apply of a ResourceSet would change in the cluster",
		Long: `Render a ResourceSet with the inputs that its providers export now, and show
what an apply would change in the cluster, in the words of 'diff kustomization'.

The comparison is a server-side dry run: nothing is changed. Values of Secrets
are never shown. What annotations copy from other objects is not compared.

Exit codes: 0 no change, 1 changes, 2 the comparison failed.`,
		Example: `  sluice diff resourceset apps
  sluice diff resourceset apps --resourceset-file apps.yaml`,
	}, d.run)
	d.bindFile(c)
	return c
}

func (d *diffResourceSet) run(ctx context.Context, name string) error {
	obj, reader, err := d.read(ctx, d.key(name))
	if err != nil {
		return err
	}
	objects, err := localset.Render(ctx, nil, reader, obj)
	if err != nil {
		return err
	}
	cfg, err := d.Config()
	if err != nil {
		return err
	}
	target, err := localset.NewTarget(cfg)
	if err != nil {
		return err
	}
	defer target.Close()
	req, err := localset.Request(ctx, target, obj, objects)
	if err != nil {
		return err
	}
	printer := changePrinter{env: d.env}
	if err := printer.compare(ctx, target, req); err != nil {
		return fmt.Errorf("ResourceSet '%s': %w", d.key(name), err)
	}
	return printer.summarize()
}
