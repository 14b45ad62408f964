package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/playground/demo"
)

func demoCommand() *cobra.Command {
	var o demo.Options
	c := &cobra.Command{
		Use:     "demo",
		Short:   "Run the main job of Sluice on sample repositories, in front of your eyes",
		Example: "  make demo\n  DEMO_EXIT=1 make demo",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Exit = os.Getenv("DEMO_EXIT") == "1"
			nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			if err := quiet(nowhere); err != nil {
				return err
			}
			return demo.Run(cmd.Context(), o, os.Stdout)
		},
	}
	c.Flags().StringVar(&o.Sluice, "sluice", "bin/sluice", "the sluice binary")
	c.Flags().StringVar(&o.Examples, "examples", "examples", "directory with the sample repositories and the pipeline")
	return c
}
