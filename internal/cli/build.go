package cli

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
)

func (a *app) build() *cobra.Command {
	c := group("build", "Build an artifact, or the objects of a Kustomization",
		`  sluice build artifact --path ./deploy --output app.tgz
  sluice build kustomization app --path ./deploy`)
	c.AddCommand(a.buildArtifact(), a.buildKustomization())
	return c
}

func (a *app) buildKustomization() *cobra.Command {
	var from localBuild
	c := a.ofKustomization(&cobra.Command{
		Short: "Build local files as the controller would, and print the objects",
		Long: `Build local files as the controller would build the Kustomization's source, and print the objects.

The Kustomization and its variables come from the cluster, or the Kustomization from --kustomization-file. What SOPS encrypted
is shown as ***. Nothing in the directory is changed.`,
		Example: `  sluice build kustomization app --path ./deploy
  sluice build kustomization app --path ./deploy --kustomization-file ./clusters/app.yaml
  sluice build kustomization app --path ./deploy --kustomization-file ./clusters/app.yaml --dry-run  # needs no cluster
  sluice build kustomization apps --path ./clusters/prod --recursive --local-sources GitRepository/flux-system/shared=../shared`,
	}, func(ctx context.Context, key types.NamespacedName) error {
		b, err := from.open(a)
		if err != nil {
			return err
		}
		return b.each(ctx, key, func(one *builtKustomization) error { return a.printYAML(one.Objects...) })
	})
	from.bind(c.Flags())
	c.Flags().BoolVar(&from.dryRun, "dry-run", false,
		"do not ask the cluster for anything; variables of ConfigMaps and Secrets are not set then")
	return c
}

// ofKustomization is a command that takes the name of one Kustomization, and no longer than --timeout.
func (a *app) ofKustomization(c *cobra.Command,
	run func(ctx context.Context, key types.NamespacedName) error) *cobra.Command {
	k := byTitle("Kustomization")
	c.Use, c.Aliases, c.Args, c.ValidArgsFunction = k.words[0]+" NAME", k.words[1:], exactlyOne, a.completeNames(k)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
		defer cancel()
		return run(ctx, types.NamespacedName{Namespace: a.namespace(), Name: args[0]})
	}
	return c
}
