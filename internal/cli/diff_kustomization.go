package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/offline/localbuild"
)

// diffKustomization is `sluice diff kustomization`.
type diffKustomization struct {
	*env
	localbuild.Options
	ignoreNotFound, progress bool
}

func newDiffKustomizationCommand(e *env) *cobra.Command {
	d := &diffKustomization{env: e}
	c := newKustomizationCommand(e, &cobra.Command{
		Short: "Show what applying local files would change in the cluster",
		Long: `Build a Kustomization from local files, as its controller builds it from the
source, and show what applying the result would change in the cluster.

The comparison is a server-side dry run: nothing is changed. Values of Secrets
are never shown. Values encrypted by SOPS are assumed to be unchanged.

Exit codes: 0 no change, 1 changes, 2 the comparison failed.`,
		Example: `  sluice diff kustomization app --path ./deploy
  sluice diff kustomization app --path ./deploy \
    --kustomization-file ./clusters/app.yaml
  sluice diff kustomization apps --path ./clusters/prod --recursive \
    --local-sources GitRepository/flux-system/shared=../shared`,
	}, d.run)
	bindLocalBuild(c.Flags(), &d.Options)
	c.Flags().BoolVar(&d.ignoreNotFound, "ignore-not-found", false,
		"compare a Kustomization that is not in the cluster as one that has applied nothing")
	c.Flags().BoolVar(&d.progress, "progress-bar", true, "show progress if the output is a terminal")
	return c
}

func (d *diffKustomization) run(ctx context.Context, name string) error {
	builder, c, err := newLocalBuilder(d.env, d.Options)
	if err != nil {
		return err
	}
	cfg, err := d.Config()
	if err != nil {
		return err
	}
	target, err := apply.NewCluster(cfg, apply.ClusterOptions{})
	if err != nil {
		return err
	}
	defer target.Close()
	run := &comparison{diffKustomization: d, client: c, target: target, first: d.key(name),
		printer: changePrinter{env: d.env}}
	err = builder.Build(ctx, run.first, func(r *localbuild.Result) error { return run.compare(ctx, r) })
	d.Clear()
	if err != nil {
		return err
	}
	return run.printer.summarize()
}

// comparison is one run of `sluice diff kustomization`.
type comparison struct {
	*diffKustomization
	client  client.Client
	target  *apply.Cluster
	first   types.NamespacedName // the Kustomization on the command line
	printer changePrinter
}

// compare prints what applying one Kustomization would change.
func (c *comparison) compare(ctx context.Context, built *localbuild.Result) error {
	obj := built.Kustomization
	key := client.ObjectKeyFromObject(obj)
	if obj.Spec.KubeConfig != nil && key != c.first {
		c.Warn("Kustomization '%s' was skipped: it applies to another cluster", key)
		return nil
	}
	if obj.Spec.KubeConfig != nil {
		return fmt.Errorf("Kustomization '%s' applies to another cluster, which this command cannot read", key)
	}
	if c.progress {
		c.Live("comparing Kustomization '%s'", key)
	}
	live := &kustomizev1.Kustomization{}
	err := c.client.Get(ctx, key, live)
	switch {
	case apierrors.IsNotFound(err) && !c.ignoreNotFound:
		return fmt.Errorf("Kustomization '%s' is not in the cluster. Set --ignore-not-found to compare it anyway", key)
	case client.IgnoreNotFound(err) != nil:
		return cluster.Explain(fmt.Sprintf("cannot get Kustomization '%s'", key), err)
	}
	req, err := built.ApplyRequest(ctx, c.target, live, nil)
	if err != nil {
		return err
	}
	if err := c.warnOf(built, c.StrictFields); err != nil {
		return fmt.Errorf("Kustomization '%s': %w", key, err)
	}
	if err := c.printer.compare(ctx, c.target, req); err != nil {
		return fmt.Errorf("Kustomization '%s': %w", key, err)
	}
	return nil
}
