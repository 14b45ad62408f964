// Package cli is the command line: one file a verb. It talks to the cluster and to the packages below, and
// owns no logic.
package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/manager"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // the command ran and failed, or the object is not Ready
	exitUsage  = 2 // the command's words are off, or a comparison failed
)

const (
	defaultNamespace = "flux-system"
	namespaceEnv     = "SLUICE_NAMESPACE"
)

// app is what the commands share.
type app struct {
	in       *bufio.Reader
	terminal *os.File // that in reads from; nil when it reads from something else
	out, err *screen
	flags    *genericclioptions.ConfigFlags
	timeout  time.Duration
	verbose  bool
	qps      float32
	burst    int
	follows  bool // the namespace is the kubeconfig context's
}

// usageError is a mistake in the command's words.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Main runs a command line and returns the process's exit code. Results go to out, all else to errOut.
func Main(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	a := &app{in: bufio.NewReader(in), out: newScreen(out), err: newScreen(errOut),
		flags: genericclioptions.NewConfigFlags(true)}
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		a.terminal = f
	}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	a.clear()
	if err == nil {
		return exitOK
	}
	code := exitFailed
	var usage usageError
	var trouble troubleError
	if errors.As(err, &usage) {
		code = exitUsage
	} else if errors.As(err, &trouble) {
		code, err = exitUsage, trouble.error
	}
	for _, one := range each(err) {
		a.say(red, "✗", "%v", one)
	}
	return code
}

// each takes errors that were joined apart, so that each gets a line.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && strings.Contains(err.Error(), "\n") {
		return joined.Unwrap()
	}
	return []error{err}
}

func (a *app) root() *cobra.Command {
	c := group("sluice", "GitOps for Kubernetes: keep the cluster as git declares it",
		`  sluice install                                    # the definitions and the controllers
  sluice get all -A                                 # what there is, and whether it is Ready
  sluice reconcile kustomization app --with-source  # now, not at the next interval
  sluice gate open release --for 2h                 # let through what waits at a gate
  sluice simulate gates --at 2026-12-24T12:00:00Z   # what gates would hold then`)
	c.Long = `Sluice keeps system == declarations == git: it fetches declarations, builds them and makes the cluster match.

Exit codes: 0 all went well, 1 the command failed or the object is not Ready, 2 the command's words are off. Of diff: 0 there
is no difference, 1 there are some, 2 the comparison failed.
Results go to standard output, progress and errors to standard error. NO_COLOR turns colours off.`
	c.SilenceUsage = true
	c.SilenceErrors = true
	c.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w. See %s --help", err, cmd.CommandPath())
	})
	f := c.PersistentFlags()
	namespace := os.Getenv(namespaceEnv)
	if namespace == "" {
		namespace = defaultNamespace
	}
	*a.flags.Namespace = namespace
	a.flags.Timeout = nil // ours is for the whole command
	kube := pflag.NewFlagSet("", pflag.ContinueOnError)
	a.flags.AddFlags(kube)
	kube.Lookup("server").Shorthand = "" // -s is that of --silent, as scripts have it
	f.AddFlagSet(kube)
	f.BoolVar(&a.follows, "ns-follows-kube-context", false,
		"use the namespace of the kubeconfig's context unless --namespace is given")
	f.DurationVar(&a.timeout, "timeout", 5*time.Minute, "how long the command may take")
	f.BoolVar(&a.verbose, "verbose", false, "show every request to the Kubernetes API")
	f.Float32Var(&a.qps, "kube-api-qps", 50, "requests per second to the Kubernetes API")
	f.IntVar(&a.burst, "kube-api-burst", 300, "requests to the Kubernetes API in a burst")
	c.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if !a.follows || cmd.Flags().Changed("namespace") {
			return nil
		}
		*a.flags.Namespace = "" // or it would count as given
		of, _, err := a.flags.ToRawKubeConfigLoader().Namespace()
		*a.flags.Namespace = of
		return err
	}
	c.AddCommand(a.controller(), a.install(), a.uninstall(), a.create(), a.get(), a.export(), a.delete(),
		a.reconcile(), a.suspend(), a.resume(), a.build(), a.push(), a.pull(), a.list(), a.tag(), a.diff(),
		a.tree(), a.trace(), a.events(), a.logs(), a.debug(), a.stats(), a.gate(), a.simulate(), a.alert(), a.trigger(),
		a.envsubst(), a.image(), a.version())
	return c
}

// group makes a command that only holds others.
func group(use, short, example string) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Example: example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			hint := ""
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				hint = fmt.Sprintf(" Did you mean %s?", strings.Join(near, " or "))
			}
			return usagef("unknown command %q for %s.%s See %s --help", args[0], cmd.CommandPath(), hint,
				cmd.CommandPath())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.SuggestionsMinimumDistance = 2
	return c
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments, got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// config returns access to the cluster.
func (a *app) config() (*rest.Config, error) {
	cfg, err := a.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("no access to a cluster: %w. Set --kubeconfig or $KUBECONFIG", err)
	}
	cfg.QPS, cfg.Burst = a.qps, a.burst
	cfg.UserAgent = "sluice-cli"
	if a.verbose {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return tracer{a, next} })
	}
	return cfg, nil
}

// tracer shows requests.
type tracer struct {
	*app
	next http.RoundTripper
}

func (t tracer) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	answer := "no answer"
	if err == nil {
		answer = resp.Status
	}
	t.say(grey, "·", "%s %s: %s", r.Method, r.URL.RequestURI(), answer)
	return resp, err
}

// client returns a client that knows our kinds and may watch.
func (a *app) client() (client.WithWatch, error) {
	cfg, err := a.config()
	if err != nil {
		return nil, err
	}
	log.SetLogger(logr.Discard()) // the client's own log is for controllers
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: manager.Scheme()})
	if err != nil {
		return nil, explain("cannot reach the cluster", err)
	}
	return c, nil
}

func (a *app) namespace() string { return *a.flags.Namespace }
