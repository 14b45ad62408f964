package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newManCommand(e *env) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "man",
		Short: "Write the manual pages of all commands into a directory",
		Long: `Writes a manual page for each command, such as sluice-get.1. They are made from
the same texts as --help.`,
		Example: `  sluice man --output ~/.local/share/man/man1
  man sluice-get`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := os.MkdirAll(output, 0o755); err != nil {
				return fmt.Errorf("cannot create the directory of --output: %w", err)
			}
			header := &doc.GenManHeader{Section: "1", Source: "Sluice " + fullVersion(), Manual: "Sluice"}
			if _, date := origin(); date != "" {
				built, err := time.Parse(time.RFC3339, date)
				if err != nil {
					return fmt.Errorf("the date of the build is not valid: %w", err)
				}
				header.Date = &built
			}
			if err := doc.GenManTree(cmd.Root(), header, output); err != nil {
				return fmt.Errorf("cannot write the manual pages: %w", err)
			}
			written, err := filepath.Glob(filepath.Join(output, "sluice*.1"))
			if err != nil {
				return err
			}
			e.Done("%d manual pages in %s", len(written), output)
			return nil
		},
	}
	c.Flags().StringVar(&output, "output", "", "directory to write to; created if it does not exist (required)")
	if err := c.MarkFlagRequired("output"); err != nil {
		panic(err) // the flag does not exist
	}
	return c
}
