// Package cli is the command line, one file a verb. A command parses its flags, calls the packages below and prints the
// result. What it calls is in packages of its own: cluster (reading and changing objects), kind (the table of kinds),
// localbuild, manifest, term (output), and those that the controllers use too.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/text/explain"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // the command failed, or the object is not Ready; of diff: there are differences
	exitUsage  = 2 // usage error; of diff: the comparison failed
)

// helpWidth is the width in columns of help texts.
const helpWidth = 80

// env is what every command needs: the terminal and access to the cluster.
type env struct {
	*term.UI
	*cluster.Connection
	getenv func(name string) string
}

func newEnv(in io.Reader, out, errOut io.Writer) *env {
	e := &env{term.New(in, out, errOut), cluster.NewConnection(), os.Getenv}
	e.OnRequest = func(method, uri, result string) { e.Debug("%s %s: %s", method, uri, result) }
	return e
}

// Main runs a command line and returns the exit code of the process. Results go to out, everything else to errOut.
func Main(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	return newEnv(in, out, errOut).main(ctx, args, in, out, errOut)
}

func (e *env) main(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	root := newRootCommand(e)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	refuseAsUsage(root)
	root.SetArgs(expandObject(root, args))
	cmd, err := root.ExecuteContextC(ctx)
	e.Clear()
	if err == nil {
		return exitOK
	}
	code := exitFailed
	var usage usageError
	var comparison comparisonError
	var difference differenceError
	if errors.As(err, &difference) {
		e.Step("%v", difference) // what the command was asked for, and no failure
		return exitFailed
	}
	if errors.As(err, &usage) {
		code = exitUsage
	} else if errors.As(err, &comparison) {
		code, err = exitUsage, comparison.error
	}
	for _, one := range split(err) {
		e.Fail(errors.New(explain.WithCode(fault.Reason(one, ""), one.Error(), math.MaxInt)))
	}
	if usage.error != nil {
		e.Step("See %s --help", cmd.CommandPath())
	}
	return code
}

// split returns the errors that were joined, so that each is printed on its own line.
func split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && strings.Contains(err.Error(), "\n") {
		return joined.Unwrap()
	}
	return []error{err}
}

func newRootCommand(e *env) *cobra.Command {
	c := newGroup("sluice", "GitOps for Kubernetes: keep clusters in the state that git declares",
		`  sluice install                                    # install CRDs and controllers
  sluice get all -A                                 # list all objects
  sluice reconcile kustomization app --with-source  # fetch and apply now
  sluice gate open release --for 2h                 # let changes through a gate
  sluice simulate gates --at 2026-12-24T12:00:00Z   # what would be held then`)
	c.Long = `Sluice fetches declarations from git, OCI registries, Helm repositories and
buckets, builds them, and applies them to Kubernetes.

Results go to standard output, progress and errors to standard error. Set
NO_COLOR to turn colours off.

Exit codes: 0 success, 1 the command failed or the object is not Ready,
2 usage error. Of diff: 0 no difference, 1 differences, 2 error.`
	c.SilenceUsage = true
	c.SilenceErrors = true
	c.Version = fullVersion()
	c.SetVersionTemplate("sluice: {{.Version}}\n")
	c.SetUsageTemplate(usageTemplate(c.UsageTemplate()))
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return usageError{err}
	})
	e.AddFlags(c.PersistentFlags())
	c.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if e.Timeout <= 0 {
			return usagef("invalid value %q for --timeout: use a duration above 0, such as 5m", e.Timeout)
		}
		return e.Complete(cmd.Flags())
	}
	c.AddCommand(newControllerCommand(e), newHubCommand(e), newClusterCommand(e), newInstallCommand(e),
		newCheckCommand(e), newUpgradeCommand(e), newUninstallCommand(e), newMigrateCommand(e),
		newBootstrapCommand(e), newCreateCommand(e),
		newGetCommand(e), newExportCommand(e), newDeleteCommand(e), newReconcileCommand(e), newSuspendCommand(e),
		newResumeCommand(e), newRollbackCommand(e), newBuildCommand(e), newPushCommand(e), newPullCommand(e),
		newListCommand(e), newTagCommand(e), newDiffCommand(e), newPreviewCommand(e),
		newTreeCommand(e), newRenderCommand(e), newValidateCommand(e), newUICommand(e), newMCPCommand(e),
		newReviewCommand(e), newTraceCommand(e), newWhyCommand(e), newEventsCommand(e), newExplainCommand(e),
		newLogsCommand(e), newDebugCommand(e), newStatsCommand(e), newGateCommand(e), newSimulateCommand(e),
		newAlertCommand(e), newTriggerCommand(e), newEnvsubstCommand(e), newImageCommand(e), newMirrorCommand(e),
		newManCommand(e), newOptionsCommand(e), newVersionCommand(e))
	c.SetHelpCommand(newHelpCommand(c))
	e.completeFlags(c)
	return c
}

// newGroup returns a command that only has subcommands.
func newGroup(use, short, example string) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Example: example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			hint := ""
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				hint = fmt.Sprintf(". Did you mean %s?", strings.Join(near, " or "))
			}
			return usagef("unknown command %q for %s%s", args[0], cmd.CommandPath(), hint)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.SuggestionsMinimumDistance = 2
	return c
}
