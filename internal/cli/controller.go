package cli

import (
	"cmp"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/internal/manager"
)

func (a *app) controller() *cobra.Command {
	var o manager.Options
	c := &cobra.Command{
		Use:   "controller",
		Short: "Run the controllers, in a cluster or outside of it",
		Long: `Run the controllers until SIGINT or SIGTERM. In a cluster the service account is used; outside of it --kubeconfig,
$KUBECONFIG or ~/.kube/config.`,
		Example: `  sluice controller --kubeconfig ~/.kube/config --storage-path /tmp/sluice
  sluice controller --controllers source-controller`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.config()
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("runtime-namespace") {
				o.RuntimeNamespace = cmp.Or(os.Getenv("RUNTIME_NAMESPACE"), a.namespace())
			}
			return manager.Run(cmd.Context(), cfg, o)
		},
	}
	o.BindFlags(c.Flags())
	return c
}
