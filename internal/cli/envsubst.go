package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/internal/build/substitute"
)

func newEnvsubstCommand(e *env) *cobra.Command {
	var strict bool
	c := &cobra.Command{
		Use:   "envsubst",
		Short: "Replace ${variables} in standard input by environment variables",
		Long: `Replace ${variables} in standard input by environment variables, with the same
functions as spec.postBuild of a Kustomization.`,
		Example: `  cat app.yaml | region=eu sluice envsubst
  kustomize build . | sluice envsubst --strict`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := io.ReadAll(e.In)
			if err != nil {
				return err
			}
			variables := map[string]string{}
			for _, one := range os.Environ() {
				name, value, _ := strings.Cut(one, "=")
				variables[name] = value
			}
			expanded, err := substitute.Expand(string(text), variables, strict)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(e.Out, expanded)
			return err
		},
	}
	c.Flags().BoolVar(&strict, "strict", false, "fail if a variable is not set and has no default")
	return c
}
