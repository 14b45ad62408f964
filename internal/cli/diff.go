package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// differenceError reports that a comparison found differences: exit code 1.
type differenceError struct{ error }

// comparisonError reports that a comparison failed: exit code 2, as in diff(1).
type comparisonError struct{ error }

func differencef(format string, args ...any) error {
	return differenceError{fmt.Errorf(format, args...)}
}

func newDiffCommand(e *env) *cobra.Command {
	c := newGroup("diff", "Compare local files with an artifact or with the cluster",
		`  sluice diff artifact oci://registry.example.com/org/app:v1 --path ./deploy
  sluice diff kustomization app --path ./deploy
  sluice diff helmrelease app --path ./charts/app
  sluice diff resourceset apps`)
	c.Long = `Compare local files with an artifact or with the cluster.

Exit codes: 0 no difference, 1 differences, 2 the comparison failed.`
	c.AddCommand(newDiffArtifactCommand(e), newDiffKustomizationCommand(e), newDiffHelmReleaseCommand(e),
		newDiffResourceSetCommand(e))
	for _, sub := range c.Commands() {
		run := sub.RunE
		sub.RunE = func(cmd *cobra.Command, args []string) error {
			err := run(cmd, args)
			if found := (differenceError{}); err == nil || errors.As(err, &found) {
				return err
			}
			return comparisonError{err}
		}
	}
	return c
}
