package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/playground/demo"
)

func demoCommand() *cobra.Command {
	var o demo.Options
	var picture string
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
			if picture == "" {
				return demo.Run(cmd.Context(), o, os.Stdout)
			}
			recorder := demo.NewRecorder()
			if err := demo.Run(cmd.Context(), o, recorder); err != nil {
				return err
			}
			return os.WriteFile(picture, recorder.SVG(), 0o600)
		},
	}
	c.Flags().StringVar(&o.Sluice, "sluice", "bin/sluice", "the sluice binary")
	c.Flags().StringVar(&o.Examples, "examples", "examples", "directory with the sample repositories and the pipeline")
	c.Flags().StringVar(&picture, "picture", "", "write what a terminal shows to this file, as animated SVG")
	return c
}
