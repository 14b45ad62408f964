// Package cli is the command line: one file a verb. It talks to the cluster and to the packages below, and owns no logic.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/manager"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // the command ran and failed, or the object is not Ready
	exitUsage  = 2 // the command's words are off
)

const (
	defaultNamespace = "flux-system"
	namespaceEnv     = "SLUICE_NAMESPACE"
)

// app is what the commands share.
type app struct {
	in       io.Reader
	out, err io.Writer
	flags    *genericclioptions.ConfigFlags
	timeout  time.Duration
	verbose  bool
	qps      float32
	burst    int
	terminal bool // standard error is one: progress lines and colours make sense
}

// usageError is a mistake in the command's words.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Main runs a command line and returns the process's exit code.
func Main(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	a := &app{in: in, out: out, err: errOut, flags: genericclioptions.NewConfigFlags(true)}
	if f, ok := errOut.(*os.File); ok {
		a.terminal = term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
	}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(errOut, "%s %v\n", a.paint(red, "✗"), err)
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

func (a *app) root() *cobra.Command {
	c := &cobra.Command{
		Use:   "sluice",
		Short: "GitOps for Kubernetes: keep the cluster as git declares it",
		Long: `Sluice keeps system == declarations == git: it fetches declarations, builds them and makes the cluster match.

Exit codes: 0 all went well, 1 the command failed or the object is not Ready, 2 the command's words are off.`,
		Example: `  sluice install                                    # the definitions and the controllers
  sluice get all -A                                 # what there is, and whether it is Ready
  sluice reconcile kustomization app --with-source  # now, not at the next interval`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q for sluice; see sluice --help", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := c.PersistentFlags()
	namespace := os.Getenv(namespaceEnv)
	if namespace == "" {
		namespace = defaultNamespace
	}
	*a.flags.Namespace = namespace
	a.flags.Timeout = nil // ours is for the whole command
	a.flags.AddFlags(f)
	f.DurationVar(&a.timeout, "timeout", 5*time.Minute, "how long the command may take")
	f.BoolVar(&a.verbose, "verbose", false, "say more")
	f.Float32Var(&a.qps, "kube-api-qps", 50, "requests per second to the Kubernetes API")
	f.IntVar(&a.burst, "kube-api-burst", 300, "requests to the Kubernetes API in a burst")
	c.AddCommand(a.controller(), a.install(), a.get(), a.reconcile(), a.suspend(), a.resume(), a.version())
	return c
}

// config returns access to the cluster.
func (a *app) config() (*rest.Config, error) {
	cfg, err := a.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("no access to a cluster: %w. Set --kubeconfig or $KUBECONFIG", err)
	}
	cfg.QPS, cfg.Burst = a.qps, a.burst
	cfg.UserAgent = "sluice-cli"
	return cfg, nil
}

// client returns a client that knows our kinds and may watch.
func (a *app) client() (client.WithWatch, error) {
	cfg, err := a.config()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: manager.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("cannot reach the cluster: %w", err)
	}
	return c, nil
}

func (a *app) namespace() string { return *a.flags.Namespace }
