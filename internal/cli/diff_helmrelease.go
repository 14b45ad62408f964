package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/offline/localrelease"
)

// diffHelmRelease is `sluice diff helmrelease`.
type diffHelmRelease struct {
	*env
	localrelease.Options
	ignoreNotFound bool
}

func newDiffHelmReleaseCommand(e *env) *cobra.Command {
	d := &diffHelmRelease{env: e}
	c := newNamedCommand(e, kind.ByName(helmv2.HelmReleaseKind), &cobra.Command{
		Short: "Show what an install or upgrade would change in the cluster",
		Long: `Render a HelmRelease as its controller does, and show what the install or
upgrade would change in the cluster, in the words of 'diff kustomization'.
Hooks are not compared.

The chart is the local one of --path, or else the artifact of the source, which
is read through the API server. The comparison is a server-side dry run:
nothing is changed. Values of Secrets are never shown.

Exit codes: 0 no change, 1 changes, 2 the comparison failed.`,
		Example: `  sluice diff helmrelease app
  sluice diff helmrelease app --path ./charts/app
  sluice diff helmrelease app --helmrelease-file ./clusters/app.yaml`,
	}, d.run)
	bindLocalRelease(c.Flags(), &d.Options)
	c.Flags().BoolVar(&d.ignoreNotFound, "ignore-not-found", false,
		"compare a HelmRelease that is not in the cluster as one that has released nothing")
	return c
}

func (d *diffHelmRelease) run(ctx context.Context, name string) error {
	builder, target, done, err := newLocalRelease(d.env, d.Options)
	defer done()
	if err != nil {
		return err
	}
	d.Live("rendering HelmRelease '%s'", d.key(name))
	result, err := builder.Build(ctx, d.key(name))
	d.Clear()
	if err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(result.Object)
	switch {
	case !result.Live && !d.ignoreNotFound:
		return fmt.Errorf("HelmRelease '%s' is not in the cluster. Set --ignore-not-found to compare it anyway", key)
	case result.Object.Spec.KubeConfig != nil:
		return fmt.Errorf("HelmRelease '%s' releases to another cluster, which this command cannot read", key)
	}
	req, err := result.ApplyRequest(ctx, target, nil)
	if err != nil {
		return err
	}
	printer := changePrinter{env: d.env}
	if err := printer.compare(ctx, target, req); err != nil {
		return fmt.Errorf("HelmRelease '%s': %w", key, err)
	}
	return printer.summarize()
}
