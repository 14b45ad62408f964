package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/internal/substitute"
)

func (a *app) envsubst() *cobra.Command {
	var strict bool
	c := &cobra.Command{
		Use: "envsubst",
		Short: "Replace ${variables} of standard input by those of the environment, with the functions of " +
			"spec.postBuild",
		Example: `  cat app.yaml | region=eu sluice envsubst
  kustomize build . | sluice envsubst --strict`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := io.ReadAll(a.in)
			if err != nil {
				return err
			}
			variables := map[string]string{}
			for _, one := range os.Environ() {
				name, value, _ := strings.Cut(one, "=")
				variables[name] = value
			}
			out, err := substitute.Expand(string(text), variables, strict)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(a.out, out)
			return err
		},
	}
	c.Flags().BoolVar(&strict, "strict", false, "fail when a variable is not set and has no default")
	return c
}
