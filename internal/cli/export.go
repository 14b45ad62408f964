package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/model/kind"
)

// exporter is `sluice export` for one kind.
type exporter struct {
	*env
	kind *kind.Kind
}

func newExportCommand(e *env) *cobra.Command {
	c := newGroup("export", "Print objects as YAML to store in git, without status",
		`  sluice export source git app > app.yaml
  sluice export kustomization --all -n apps`)
	var all bool
	c.PersistentFlags().BoolVar(&all, "all", false, "all objects in the namespace")
	e.addPerKind(c, func(k *kind.Kind) *cobra.Command { return newExportKindCommand(e, k, &all) })
	return c
}

func newExportKindCommand(e *env, k *kind.Kind, all *bool) *cobra.Command {
	return &cobra.Command{
		Use:     k.Words[0] + " NAME...",
		Aliases: k.Words[1:],
		Short:   "Print " + k.Name() + " objects as YAML",
		Example: fmt.Sprintf("  sluice export %s NAME\n  sluice export %s --all", k.Path(), k.Path()),
		Args:    namesOrAll(all),
		RunE:    e.bounded(exporter{e, k}.run),
	}
}

// run prints the named objects, or all if none is named. After an error it continues with the next object.
func (x exporter) run(ctx context.Context, names []string) error {
	c, err := x.Client()
	if err != nil {
		return err
	}
	if names, err = x.namesOrAll(ctx, c, x.kind, names); err != nil {
		return err
	}
	var failures []error
	for _, name := range names {
		obj, err := cluster.Get(ctx, c, x.kind, x.key(name))
		if err == nil {
			err = x.printDeclarations(obj)
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}
