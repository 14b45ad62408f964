package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/migrate"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// migrateCommand is `sluice migrate`.
type migrateCommand struct {
	*env
	path, version string
	extensions    []string
	dryRun, yes   bool
}

func newMigrateCommand(e *env) *cobra.Command {
	o := &migrateCommand{env: e}
	c := newGroup("migrate", "Move objects and manifests to newer API versions, or a cluster from Flux", "")
	c.Long = `Store all objects of the cluster in the storage versions of their
CustomResourceDefinitions, so that older versions can be removed. Objects and
what they applied do not change.

With --path, set apiVersion of the manifests in files to the newest versions
instead. Nothing else of the files changes, and no cluster is needed.

To move a cluster from Flux to Sluice, see sluice migrate flux --help.`
	c.Example = `  sluice migrate --dry-run                  # what is stored in older versions
  sluice migrate --yes
  sluice migrate --path ./clusters --yes    # manifests in a checkout
  sluice migrate --path ./clusters --version 2.6 --dry-run
  sluice migrate flux                       # what a migration from Flux would do`
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.version != "" && o.path == "" {
			return usagef("--version works with --path only")
		}
		if o.path != "" {
			return o.files()
		}
		ctx, cancel := e.WithTimeout(cmd.Context())
		defer cancel()
		return o.stored(ctx)
	}
	f := c.Flags()
	f.StringVarP(&o.path, "path", "f", "", "file or directory with manifests")
	f.StringSliceVarP(&o.extensions, "extensions", "e", []string{".yaml", ".yml"},
		"extensions of the manifests in the directory")
	f.StringVarP(&o.version, "version", "v", "",
		"version of Flux, such as 2.6, whose newest API versions are used (default: those of Sluice)")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be done, and change nothing")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	c.AddCommand(newMigrateFluxCommand(e))
	return c
}

// stored stores the objects of the cluster in the storage versions.
func (o *migrateCommand) stored(ctx context.Context) error {
	cfg, err := o.Config()
	if err != nil {
		return err
	}
	c, err := migrate.NewClient(cfg)
	if err != nil {
		return cluster.Explain("cannot reach the cluster", err)
	}
	if !o.dryRun && !o.yes && !o.Confirm("This writes all objects that are stored in older versions again. "+
		"Continue?") {
		return errors.New("cancelled: nothing was changed. Use --yes to skip the question")
	}
	results, err := migrate.StoredVersions(ctx, c, o.dryRun)
	outdated := 0
	for _, r := range results {
		if r.IsCurrent() {
			continue
		}
		outdated++
		verb := "stored"
		if o.dryRun {
			verb = "would be stored"
		}
		o.Done("%s: %s %s as %s (before: %s)", r.Name, excerpt.Count(r.Objects, "object"), verb, r.Version,
			strings.Join(r.Before, ", "))
	}
	if err != nil {
		return cluster.Explain("cannot migrate stored versions", err)
	}
	if len(results) == 0 {
		return errors.New("the cluster has no CustomResourceDefinitions of Flux or Sluice. Run sluice install")
	}
	if outdated == 0 {
		o.Done("all objects are stored in the newest versions")
	}
	return nil
}

// files sets the API versions of manifests.
func (o *migrateCommand) files() error {
	definitions, err := config.Definitions()
	if err != nil {
		return err
	}
	options := migrate.FileOptions{Path: o.path, Extensions: o.extensions, Versions: migrate.VersionsOf(definitions),
		DryRun: true}
	if o.version != "" {
		if options.Versions, err = migrate.VersionsOfFlux(o.version); err != nil {
			return usagef("--version: %w", err)
		}
	}
	found, err := migrate.Files(options)
	if err != nil {
		return err
	}
	for _, r := range found {
		fmt.Fprintf(o.Out, "%s:%d %s: %s -> %s\n", r.File, r.Line, r.Kind, r.From, r.To)
	}
	switch {
	case len(found) == 0:
		o.Done("all manifests in %s have the newest versions", o.path)
		return nil
	case o.dryRun:
		o.Step("%s would change", excerpt.Count(len(found), "manifest"))
		return nil
	case !o.yes && !o.Confirm(fmt.Sprintf("Change %s?", excerpt.Count(len(found), "manifest"))):
		return errors.New("cancelled: nothing was changed. Use --yes to skip the question")
	}
	options.DryRun = false
	if found, err = migrate.Files(options); err != nil {
		return err
	}
	o.Done("%s changed", excerpt.Count(len(found), "manifest"))
	return nil
}
