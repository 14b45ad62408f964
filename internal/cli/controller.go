package cli

import (
	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/internal/manager"
)

func (a *app) controller() *cobra.Command {
	var o manager.Options
	c := &cobra.Command{
		Use:   "controller",
		Short: "Run the controllers, in a cluster or outside of it",
		Example: `  sluice controller --kubeconfig ~/.kube/config --storage-path /tmp/sluice
  sluice controller --controllers source-controller`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.config()
			if err != nil {
				return err
			}
			o.RuntimeNamespace = a.namespace()
			return manager.Run(cmd.Context(), cfg, o)
		},
	}
	o.BindFlags(c.Flags())
	return c
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("this command takes no arguments, got %q", args[0])
	}
	return nil
}
