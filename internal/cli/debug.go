package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/kustomization/spec"
)

func (a *app) debug() *cobra.Command {
	c := group("debug", "Show what an object works with and what it came to",
		"  sluice debug kustomization app --show-status")
	c.AddCommand(a.debugKustomization())
	return c
}

func (a *app) debugKustomization() *cobra.Command {
	var status, history, vars bool
	c := a.ofKustomization(&cobra.Command{
		Short: "Show status, history and variables of a Kustomization",
		Long: `Show status, history and variables of a Kustomization.

Variables that come from Secrets are printed as they are: mind who sees them.`,
		Example: `  sluice debug kustomization app --show-status
  sluice debug kustomization app --show-history
  sluice debug kustomization app --show-vars > vars.env`,
	}, func(ctx context.Context, key types.NamespacedName) error {
		if !status && !history && !vars {
			return usagef("say what to show: --show-status, --show-history or --show-vars")
		}
		cluster, err := a.client()
		if err != nil {
			return err
		}
		found, err := fetch(ctx, cluster, byTitle(kustomizev1.KustomizationKind), key)
		if err != nil {
			return err
		}
		obj := found.(*kustomizev1.Kustomization)
		if status {
			if err := a.printField("status", obj.Status); err != nil {
				return err
			}
		}
		if history {
			if err := a.printField("history", obj.Status.History); err != nil {
				return err
			}
		}
		if !vars {
			return nil
		}
		variables, err := spec.ReadVariables(ctx, cluster, obj)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(variables.Values)) {
			fmt.Fprintf(a.out, "%s=%s\n", name, dotenv(variables.Values[name]))
		}
		return nil
	})
	c.Flags().BoolVar(&status, "show-status", false, "print the status")
	c.Flags().BoolVar(&history, "show-history", false, "print the history of reconciles")
	c.Flags().BoolVar(&vars, "show-vars", false,
		"print the variables of spec.postBuild, those of Secrets too, in dotenv format")
	return c
}

func (a *app) printField(name string, value any) error {
	b, err := yaml.Marshal(map[string]any{name: value})
	if err != nil {
		return err
	}
	_, err = a.out.Write(b)
	return err
}

// dotenv writes a value so that a shell and readers of .env files read the same of it; plain where that does.
func dotenv(value string) string {
	if !strings.ContainsFunc(value, func(r rune) bool {
		return !strings.ContainsRune("_-.,:/@+=%", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') &&
			(r < 'a' || r > 'z')
	}) {
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}
