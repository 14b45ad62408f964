package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/offline/schema"
	"github.com/sluice-gitops/sluice/internal/offline/validate"
	"github.com/sluice-gitops/sluice/internal/source/ignore"
	"github.com/sluice-gitops/sluice/internal/source/oci"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/sarif"
)

// validateFormats are the values of --output.
var validateFormats = []string{"json", "sarif"}

// validateCommand is `sluice validate`.
type validateCommand struct {
	*env
	version, output string
	definitions     []string
	ignorePaths     []string
	strict          bool
}

func newValidateCommand(e *env) *cobra.Command {
	v := &validateCommand{env: e}
	c := &cobra.Command{
		Use:   "validate [DIR]",
		Short: "Check manifests, builds and charts without a cluster",
		Long: `Check the files of a directory without a cluster: manifests, what kustomize and
Kustomizations build of them, and charts with their own values. Unknown fields,
wrong types, missing fields and unknown kinds are printed with file and line.

Definitions are those of Kubernetes ` + strings.Join(schema.Releases, " or ") + `, of Sluice, of
CustomResourceDefinitions in the directory, and of --definitions. Objects of
other kinds are not checked. Rules in CEL and webhooks are not evaluated.

The exit code is 1 if there is a problem.`,
		Example: `  sluice validate
  sluice validate ./clusters --kubernetes-version 1.35 --definitions crds/
  kubectl get --raw /openapi/v2 > openapi.json
  sluice validate --definitions openapi.json -o sarif > validate.sarif`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("expected one directory")
			}
			return nil
		},
		RunE: e.bounded(func(ctx context.Context, args []string) error {
			return v.run(ctx, append(args, ".")[0])
		}),
	}
	f := c.Flags()
	f.StringVar(&v.version, "kubernetes-version", "", "version of Kubernetes, such as 1.35 (default: the newest)")
	f.StringSliceVar(&v.definitions, "definitions", nil,
		"files or directories with CustomResourceDefinitions, or the OpenAPI document of a cluster")
	f.StringSliceVar(&v.ignorePaths, "ignore-paths", nil, "paths to exclude, in .gitignore syntax")
	f.BoolVar(&v.strict, "strict", false, "variables of spec.postBuild without a value and a default are problems")
	addOutput(c, f, &v.output, validateFormats...)
	return c
}

func (v *validateCommand) run(ctx context.Context, dir string) error {
	if err := optionalOneOf("output", v.output, validateFormats...); err != nil {
		return err
	}
	rules, err := ignore.New(nil)
	if err == nil {
		rules, err = rules.Also(strings.Join(v.ignorePaths, "\n"))
	}
	if err != nil {
		return usagef("--ignore-paths: %w", err)
	}
	files, err := oci.ReadLocal(dir, rules, false)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", dir, err)
	}
	definitions, err := v.readDefinitions()
	if err != nil {
		return err
	}
	templates := render.New(render.Options{Children: 1})
	defer templates.Close()
	result, err := validate.Run(ctx, validate.Options{Files: files, Definitions: definitions, Renderer: templates,
		Strict: v.strict})
	if err != nil {
		return err
	}
	for i := range result.Problems { // editors and hosts of git expect paths from where the command runs
		result.Problems[i].File = path.Join(filepath.ToSlash(dir), result.Problems[i].File)
	}
	if err := v.print(result); err != nil {
		return err
	}
	if len(result.Unknown) > 0 {
		v.Warn("not checked, as their kinds have no definition: %s. Name their CustomResourceDefinitions with "+
			"--definitions", strings.Join(result.Unknown, ", "))
	}
	if n := len(result.Problems); n > 0 {
		return fmt.Errorf("%s in %s", excerpt.Count(n, "problem"), dir)
	}
	v.Done("%s valid", excerpt.Count(result.Objects, "object"))
	return nil
}

// readDefinitions returns the definitions of a version of Kubernetes or of a cluster, and of --definitions.
func (v *validateCommand) readDefinitions() (*schema.Definitions, error) {
	var all *schema.Definitions
	var crds [][]byte
	for _, name := range v.definitions {
		err := filepath.WalkDir(name, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if filepath.Ext(file) != ".json" {
				crds = append(crds, content)
				return nil
			}
			all, err = schema.FromOpenAPI(content)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("--definitions %s: %w", name, err)
		}
	}
	if all != nil && v.version != "" {
		return nil, usagef("--kubernetes-version and an OpenAPI document exclude each other")
	}
	if all == nil {
		var err error
		if all, err = schema.ForVersion(v.version); err != nil {
			return nil, usagef("--kubernetes-version: %w", err)
		}
	}
	for _, content := range crds {
		objects, err := manifest.Decode(content)
		for _, o := range objects {
			if o.GetKind() == "CustomResourceDefinition" {
				err = errors.Join(err, all.AddCRD(o))
			}
		}
		if err != nil {
			return nil, fmt.Errorf("--definitions: %w", err)
		}
	}
	return all, nil
}

func (v *validateCommand) print(result *validate.Result) error {
	switch v.output {
	case "json":
		return v.printAs(v.output, result)
	case "sarif":
		return sarif.Write(v.Out, Version, validateRules, findings(result))
	}
	for _, p := range result.Problems {
		if _, err := fmt.Fprintln(v.Out, p); err != nil {
			return err
		}
	}
	return nil
}

// validateRules are the rules of problems.
var validateRules = []sarif.Rule{
	{ID: schema.UnknownField, Text: "the kind has no such field", Level: sarif.Error},
	{ID: schema.WrongType, Text: "the field has another type", Level: sarif.Error},
	{ID: schema.Required, Text: "a required field is missing", Level: sarif.Error},
	{ID: schema.WrongValue, Text: "the value is not allowed", Level: sarif.Error},
	{ID: schema.UnknownKind, Text: "this version of Kubernetes has no such kind", Level: sarif.Error},
	{ID: validate.Syntax, Text: "the manifest cannot be read", Level: sarif.Error},
	{ID: validate.BuildFailed, Text: "the directory cannot be built", Level: sarif.Error},
	{ID: validate.RenderFailed, Text: "the chart cannot be rendered", Level: sarif.Error},
}

func findings(result *validate.Result) []sarif.Finding {
	var all []sarif.Finding
	for _, p := range result.Problems {
		all = append(all, sarif.Finding{Rule: p.Rule, Level: sarif.Error, Object: p.Object, File: p.File, Line: p.Line,
			Message: strings.TrimPrefix(p.Path+": "+p.Message, ": ")})
	}
	return all
}
