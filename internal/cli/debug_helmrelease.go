package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/helm/values"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/offline/localrelease"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// debugHelmRelease is `sluice debug helmrelease`.
type debugHelmRelease struct {
	*env
	debugStatus
	values, origins, secrets bool
}

func newDebugHelmReleaseCommand(e *env) *cobra.Command {
	d := &debugHelmRelease{env: e}
	c := newNamedCommand(e, kind.ByName(helmv2.HelmReleaseKind), &cobra.Command{
		Short: "Show values, status and history of a HelmRelease",
		Long: `Show values, status and history of a HelmRelease.

The values are those that Helm gets: spec.valuesFrom and spec.values, merged.
Values from Secrets are shown as *** unless --show-secrets is set.`,
		Example: `  sluice debug helmrelease app --show-status
  sluice debug helmrelease app --show-history
  sluice debug helmrelease app --show-values --show-secrets > values.yaml
  sluice debug helmrelease app --show-origins`,
	}, d.run)
	c.Flags().BoolVar(&d.status, "show-status", false, "print the status")
	c.Flags().BoolVar(&d.history, "show-history", false, "print the history of releases")
	c.Flags().BoolVar(&d.values, "show-values", false, "print the values that Helm gets")
	c.Flags().BoolVar(&d.origins, "show-origins", false, "print where each value comes from")
	c.Flags().BoolVar(&d.secrets, "show-secrets", false, "print values from Secrets in plain text")
	return c
}

func (d *debugHelmRelease) run(ctx context.Context, name string) error {
	if !d.status && !d.history && !d.values && !d.origins {
		return usagef("nothing to show: set --show-status, --show-history, --show-values or --show-origins")
	}
	c, err := d.Client()
	if err != nil {
		return err
	}
	found, err := cluster.Get(ctx, c, kind.ByName(helmv2.HelmReleaseKind), d.key(name))
	if err != nil {
		return err
	}
	obj := found.(*helmv2.HelmRelease)
	if err := d.print(d.env, obj.Status, obj.Status.History); err != nil {
		return err
	}
	if !d.values && !d.origins {
		return nil
	}
	cfg, err := d.Config()
	if err != nil {
		return err
	}
	composed, origins, err := localrelease.TraceValues(ctx, localrelease.Cluster{Client: c, Config: cfg}, obj,
		func(m string) { d.Warn("%s", m) })
	if err != nil {
		return fmt.Errorf("HelmRelease '%s': %w", d.key(name), err)
	}
	if d.values {
		if !d.secrets {
			composed = values.Mask(composed, origins, redact.Masked)
		}
		if err := d.printAs("yaml", composed); err != nil {
			return err
		}
	}
	if d.origins {
		return d.printOrigins(origins)
	}
	return nil
}

func (d *debugHelmRelease) printOrigins(origins []values.Origin) error {
	rows := [][]term.Cell{term.Row("VALUE", "FROM")}
	for _, o := range origins {
		rows = append(rows, term.Row(o.Path, o.From))
	}
	return term.NewTable(d.Out).Print(rows...)
}
