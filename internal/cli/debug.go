package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/kustomization/spec"
	"github.com/sluice-gitops/sluice/internal/model/kind"
)

// debugKustomization is `sluice debug kustomization`.
type debugKustomization struct {
	*env
	debugStatus
	variables bool
}

// debugStatus are the flags for the status and the history of an object.
type debugStatus struct{ status, history bool }

// print prints what the flags ask for.
func (d *debugStatus) print(e *env, status, history any) error {
	if d.status {
		if err := e.printAs("yaml", map[string]any{"status": status}); err != nil {
			return err
		}
	}
	if d.history {
		return e.printAs("yaml", map[string]any{"history": history})
	}
	return nil
}

func newDebugCommand(e *env) *cobra.Command {
	c := newGroup("debug", "Show variables or values, status and history of an object",
		"  sluice debug kustomization app --show-status\n  sluice debug helmrelease app --show-values")
	d := &debugKustomization{env: e}
	sub := newKustomizationCommand(e, &cobra.Command{
		Short: "Show variables, status and history of a Kustomization",
		Long: `Show variables, status and history of a Kustomization.

Variables from Secrets are printed in plain text.`,
		Example: `  sluice debug kustomization app --show-status
  sluice debug kustomization app --show-history
  sluice debug kustomization app --show-vars > vars.env`,
	}, d.run)
	sub.Flags().BoolVar(&d.status, "show-status", false, "print the status")
	sub.Flags().BoolVar(&d.history, "show-history", false, "print the history of reconciles")
	sub.Flags().BoolVar(&d.variables, "show-vars", false,
		"print the variables of spec.postBuild in dotenv format, with plain values from Secrets")
	c.AddCommand(sub, newDebugHelmReleaseCommand(e))
	return c
}

func (d *debugKustomization) run(ctx context.Context, name string) error {
	if !d.status && !d.history && !d.variables {
		return usagef("nothing to show: set --show-status, --show-history or --show-vars")
	}
	c, err := d.Client()
	if err != nil {
		return err
	}
	found, err := cluster.Get(ctx, c, kind.ByName(kustomizev1.KustomizationKind), d.key(name))
	if err != nil {
		return err
	}
	obj := found.(*kustomizev1.Kustomization)
	if err := d.print(d.env, obj.Status, obj.Status.History); err != nil {
		return err
	}
	if !d.variables {
		return nil
	}
	variables, err := spec.ReadVariables(ctx, c, obj)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(variables.Values)) {
		fmt.Fprintf(d.Out, "%s=%s\n", name, quoteDotenv(variables.Values[name]))
	}
	return nil
}

// quoteDotenv quotes a value for shells and readers of .env files, if it needs quotes.
func quoteDotenv(value string) string {
	if !strings.ContainsFunc(value, func(r rune) bool {
		return !strings.ContainsRune("_-.,:/@+=%", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') &&
			(r < 'a' || r > 'z')
	}) {
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}
