package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/internal/manager"
	"github.com/sluice-gitops/sluice/internal/process/options"
)

func newControllerCommand(e *env) *cobra.Command {
	var o options.Options
	c := &cobra.Command{
		Use:   "controller",
		Short: "Run the controllers",
		Long: `Run the controllers until SIGINT or SIGTERM.

In a cluster they use the service account of the Pod. Outside of a cluster they
use --kubeconfig, $KUBECONFIG or ~/.kube/config, and listen on 127.0.0.1 where
no flag sets an address.`,
		Example: `  sluice controller --kubeconfig ~/.kube/config --storage-path /tmp/sluice
  sluice controller --controllers source-controller`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := e.Config()
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("runtime-namespace") {
				o.RuntimeNamespace = cmp.Or(os.Getenv("RUNTIME_NAMESPACE"), e.Namespace())
			}
			isOutside := os.Getenv("KUBERNETES_SERVICE_HOST") == ""
			if isOutside {
				// The log is on standard error, in JSON.
				fmt.Fprintf(e.Out, "serving %s\n", strings.Join(o.ListenLocally(cmd.Flags()), ", "))
			}
			o.Version = Version
			err = manager.Run(cmd.Context(), cfg, o)
			if isOutside && errors.Is(err, syscall.EADDRINUSE) {
				err = fmt.Errorf("%w. To run beside another process, add %s", err, o.FreePorts())
			}
			return err
		},
	}
	o.BindFlags(c.Flags())
	return c
}
