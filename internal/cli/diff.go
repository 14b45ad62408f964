package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// difference is what a comparison ends with that found one. What else it ends with is a troubleError, as
// diff(1) has it.
type difference struct{ error }

type troubleError struct{ error }

func differ(format string, args ...any) error { return difference{fmt.Errorf(format, args...)} }

func (a *app) diff() *cobra.Command {
	c := group("diff", "Compare with an artifact or with the cluster; exit code 1 if there is a difference, 2 if "+
		"that cannot be told",
		`  sluice diff artifact oci://registry.example.com/org/app:v1 --path ./deploy
  sluice diff kustomization app --path ./deploy`)
	c.AddCommand(a.diffArtifact(), a.diffKustomization())
	for _, sub := range c.Commands() {
		run := sub.RunE
		sub.RunE = func(cmd *cobra.Command, args []string) error {
			err := run(cmd, args)
			if found := (difference{}); err == nil || errors.As(err, &found) {
				return err
			}
			return troubleError{err}
		}
	}
	return c
}
