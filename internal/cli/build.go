package cli

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/offline/localbuild"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
)

func newBuildCommand(e *env) *cobra.Command {
	c := newGroup("build", "Build an artifact, or the objects of a Kustomization, HelmRelease or ResourceSet",
		`  sluice build artifact --path ./deploy --output app.tgz
  sluice build kustomization app --path ./deploy
  sluice build helmrelease app --path ./charts/app
  sluice build resourceset apps`)
	c.AddCommand(newBuildArtifactCommand(e), newBuildKustomizationCommand(e), newBuildHelmReleaseCommand(e),
		newBuildResourceSetCommand(e))
	return c
}

// buildKustomization is `sluice build kustomization`.
type buildKustomization struct {
	*env
	localbuild.Options
}

func newBuildKustomizationCommand(e *env) *cobra.Command {
	b := &buildKustomization{env: e}
	c := newKustomizationCommand(e, &cobra.Command{
		Short: "Build a Kustomization from local files, and print the objects",
		Long: `Build a Kustomization from local files, as its controller builds it from the
source, and print the objects.

The Kustomization and its variables are read from the cluster, or the
Kustomization from --kustomization-file. Values encrypted by SOPS are shown as
***. No file is changed.`,
		Example: `  sluice build kustomization app --path ./deploy
  sluice build kustomization app --path ./deploy \
    --kustomization-file ./clusters/app.yaml --dry-run  # needs no cluster
  sluice build kustomization apps --path ./clusters/prod --recursive \
    --local-sources GitRepository/flux-system/shared=../shared`,
	}, b.run)
	bindLocalBuild(c.Flags(), &b.Options)
	c.Flags().BoolVar(&b.Offline, "dry-run", false,
		"do not read the cluster; variables from ConfigMaps and Secrets are not set")
	return c
}

func bindLocalBuild(f *pflag.FlagSet, o *localbuild.Options) {
	f.StringVar(&o.Path, "path", "", "local directory to build instead of spec.path")
	f.StringVar(&o.File, "kustomization-file", "", "file that declares the Kustomization, instead of the cluster")
	f.BoolVar(&o.FollowSymlinks, "follow-symlinks", false,
		"follow symlinks, as controllers with --feature-gates=FollowSymlinks=true do")
	f.StringSliceVar(&o.IgnorePaths, "ignore-paths", nil, "paths to exclude, in .gitignore syntax")
	f.StringToStringVar(&o.Sources, "local-sources", nil,
		"local directories of other sources, as KIND/NAMESPACE/NAME=DIRECTORY")
	f.BoolVar(&o.Recursive, "recursive", false, "also build Kustomizations among the objects whose source is local")
	f.BoolVar(&o.Strict, "strict-substitute", false, "fail if a variable is not set and has no default")
	f.BoolVar(&o.StrictFields, "strict-fields", false, "fail if a built-in kind has an unknown field")
	f.Bool("in-memory-build", true, "has no effect: builds always run in memory")
}

// newLocalBuilder validates the options and connects to the cluster if they need it. The client is nil if not.
func newLocalBuilder(e *env, o localbuild.Options) (*localbuild.Builder, client.Client, error) {
	if err := o.Validate(); err != nil {
		return nil, nil, usageError{err}
	}
	onSkip := func(message string) { e.Warn("%s", message) }
	if o.Offline {
		return localbuild.New(o, nil, onSkip), nil, nil
	}
	c, err := e.Client()
	if err != nil {
		return nil, nil, err
	}
	return localbuild.New(o, c, onSkip), c, nil
}

func (b *buildKustomization) run(ctx context.Context, name string) error {
	builder, _, err := newLocalBuilder(b.env, b.Options)
	if err != nil {
		return err
	}
	return builder.Build(ctx, b.key(name), func(r *localbuild.Result) error {
		if err := b.warnOf(r, b.StrictFields); err != nil {
			return err
		}
		return manifest.Encode(b.Out, r.Objects...)
	})
}

// newKustomizationCommand completes a command that takes the name of a Kustomization.
func newKustomizationCommand(e *env, c *cobra.Command,
	run func(ctx context.Context, name string) error) *cobra.Command {
	return newNamedCommand(e, kind.ByName(kustomizev1.KustomizationKind), c, run)
}

// newNamedCommand completes a command that takes the name of an object.
func newNamedCommand(e *env, k *kind.Kind, c *cobra.Command,
	run func(ctx context.Context, name string) error) *cobra.Command {
	c.Use, c.Aliases, c.Args, c.ValidArgsFunction = k.Words[0]+" NAME", k.Words[1:], exactlyOne, e.completeNames(k)
	c.RunE = e.bounded(func(ctx context.Context, args []string) error { return run(ctx, args[0]) })
	acceptObjects(c, k)
	return c
}
