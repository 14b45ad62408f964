package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/helm/kube"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/offline/localrelease"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// buildHelmRelease is `sluice build helmrelease`.
type buildHelmRelease struct {
	*env
	localrelease.Options
	showSecrets bool
}

func newBuildHelmReleaseCommand(e *env) *cobra.Command {
	b := &buildHelmRelease{env: e}
	c := newNamedCommand(e, kind.ByName(helmv2.HelmReleaseKind), &cobra.Command{
		Short: "Render a HelmRelease, and print the objects",
		Long: `Render a HelmRelease as its controller does, and print the definitions, hooks
and objects of the release.

The chart is the local one of --path, or else the artifact of the source, which
is read through the API server. The HelmRelease and its values are read from
the cluster, or the HelmRelease from --helmrelease-file. Data of Secrets and
values from Secrets are shown as ***.`,
		Example: `  sluice build helmrelease app
  sluice build helmrelease app --path ./charts/app
  sluice build helmrelease app --path ./charts/app \
    --helmrelease-file ./clusters/app.yaml --dry-run  # needs no cluster`,
	}, b.run)
	bindLocalRelease(c.Flags(), &b.Options)
	c.Flags().BoolVar(&b.Offline, "dry-run", false,
		"do not read the cluster; values from ConfigMaps and Secrets are not used, and lookup finds nothing")
	c.Flags().BoolVar(&b.showSecrets, "show-secrets", false, "print data of Secrets in plain text")
	return c
}

func bindLocalRelease(f *pflag.FlagSet, o *localrelease.Options) {
	f.StringVar(&o.Path, "path", "", "local chart, a directory or an archive, instead of the artifact of the source")
	f.StringVar(&o.File, "helmrelease-file", "", "file that declares the HelmRelease, instead of the cluster")
}

// newLocalRelease validates the options and connects to the cluster if they need it. The target is nil if not. Call
// done at the end.
func newLocalRelease(e *env, o localrelease.Options) (b *localrelease.Builder, target *apply.Cluster, done func(),
	err error) {
	done = func() {}
	if err := o.Validate(); err != nil {
		return nil, nil, done, usageError{err}
	}
	warn := func(message string) { e.Warn("%s", message) }
	if o.Offline {
		return localrelease.New(o, nil, warn), nil, done, nil
	}
	c, err := e.Client()
	if err != nil {
		return nil, nil, done, err
	}
	cfg, err := e.Config()
	if err != nil {
		return nil, nil, done, err
	}
	if target, err = apply.NewCluster(cfg, apply.ClusterOptions{FieldManager: kube.FieldManager}); err != nil {
		return nil, nil, done, err
	}
	access := &localrelease.Cluster{Client: c, Config: cfg, Target: target}
	return localrelease.New(o, access, warn), target, target.Close, nil
}

func (b *buildHelmRelease) run(ctx context.Context, name string) error {
	builder, _, done, err := newLocalRelease(b.env, b.Options)
	defer done()
	if err != nil {
		return err
	}
	result, err := builder.Build(ctx, b.key(name))
	if err != nil {
		return err
	}
	objects := slices.Concat(result.CRDs, result.Hooks, result.Objects)
	if !b.showSecrets {
		for _, o := range objects {
			_, shown := result.Veil.Objects(nil, o, false)
			o.Object, _ = redact.Plain(shown.Object).(map[string]any)
			maskData(o)
		}
	}
	return manifest.Encode(b.Out, objects...)
}

// maskData replaces the data of a Secret.
func maskData(o *unstructured.Unstructured) {
	if o.GetKind() != "Secret" || o.GroupVersionKind().Group != "" {
		return
	}
	for _, field := range []string{"data", "stringData"} {
		if data, ok := o.Object[field].(map[string]any); ok {
			for key := range data {
				data[key] = redact.Masked
			}
		}
	}
}
