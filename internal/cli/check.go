package cli

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/internal/cli/install"
)

func newCheckCommand(e *env) *cobra.Command {
	flags := installFlags{}
	req := install.CheckRequest{Progress: e.UI, Fail: e.Fail}
	c := &cobra.Command{
		Use:   "check",
		Short: "Check that the cluster can run Sluice, and that the installation is complete",
		Long: `Check the version of the cluster, the CustomResourceDefinitions with their
versions and fields, the admission policies, and whether the controllers are
available. With --pre, check only what an installation needs.

Exit codes: 0 all checks passed, 1 a check failed.`,
		Example: `  sluice check --pre
  sluice check`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.complete(e); err != nil {
				return err
			}
			req.Options = flags.Options
			cfg, err := e.Config()
			if err != nil {
				return err
			}
			t, err := install.Connect(cfg, e.Timeout)
			if err != nil {
				return err
			}
			defer t.Close()
			ctx, cancel := e.WithTimeout(cmd.Context())
			defer cancel()
			err = install.Check(ctx, t, req)
			if errors.Is(err, install.ErrUnhealthy) {
				return errors.New("some checks failed; see above")
			}
			return err
		},
	}
	flags.Options = install.Default(defaultTag())
	f := c.Flags()
	f.BoolVar(&req.Prerequisite, "pre", false, "check only what an installation needs")
	f.StringSliceVar(&flags.Components, "components", flags.Components, "controllers that must run")
	f.StringSliceVar(&flags.extra, "components-extra", nil, "controllers that must run in addition to --components")
	f.DurationVar(&req.PollInterval, "poll-interval", 2*time.Second, "interval at which a rollout is checked again")
	return c
}
