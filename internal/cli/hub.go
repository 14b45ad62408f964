package cli

import (
	"cmp"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/internal/manager"
	"github.com/sluice-gitops/sluice/internal/process/options"
)

func newHubCommand(e *env) *cobra.Command {
	var o options.HubOptions
	c := &cobra.Command{
		Use:   "hub",
		Short: "Run a hub that many clusters report to",
		Long: `Run a hub until SIGINT or SIGTERM. Clusters report to it with
'sluice controller --report-to'. It shows their state and changes nothing in
them: without the hub, each cluster goes on by itself.

Secrets with the label sluice.dev/cluster in --namespace say which clusters it
trusts.`,
		Example: `  sluice hub --external-url https://hub.example.com --storage-path /data
  sluice hub --external-url https://hub.example.com \
    --storage-backend-s3-endpoint https://s3.example.com --storage-backend-s3-bucket fleet`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := e.Config()
			if err != nil {
				return err
			}
			o.Namespace = e.Namespace()
			if !cmd.Flags().Changed("namespace") {
				o.Namespace = cmp.Or(os.Getenv("RUNTIME_NAMESPACE"), o.Namespace)
			}
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			return manager.RunHub(cmd.Context(), cfg, o)
		},
	}
	o.BindFlags(c.Flags())
	return c
}
