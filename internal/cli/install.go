package cli

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/manifest"
	"github.com/sluice-gitops/sluice/internal/options"
)

// installCommand is `sluice install`.
type installCommand struct {
	*env
	manifest.InstallOptions
	export                    bool
	components, extra         []string
	image, registry, imageTag string
}

func newInstallCommand(e *env) *cobra.Command {
	o := &installCommand{env: e}
	c := &cobra.Command{
		Use:   "install",
		Short: "Install the CustomResourceDefinitions and the controllers",
		Long: `Install the CustomResourceDefinitions and the controllers, or update them.
Running the command again without changes has no effect.`,
		Example: `  sluice install                     # install into the current cluster
  sluice install --export > sluice.yaml
  sluice install --crds-only         # for controllers outside of the cluster`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	f := c.Flags()
	f.BoolVar(&o.export, "export", false, "print the manifests and change nothing")
	f.BoolVar(&o.CRDsOnly, "crds-only", false, "only the CustomResourceDefinitions")
	f.StringSliceVar(&o.components, "components", options.AllControllers, "controllers to run")
	f.StringSliceVar(&o.extra, "components-extra", nil, "controllers to run in addition to --components")
	f.StringVar(&o.image, "image", "", "container image of the controllers (default: from --registry and --version)")
	f.StringVar(&o.registry, "registry", "ghcr.io/sluice-gitops", "registry of the container image")
	f.StringVar(&o.imageTag, "version", defaultTag(), "tag of the container image")
	f.StringVar(&o.PullSecret, "image-pull-secret", "", "Secret to pull the container image with")
	f.StringVar(&o.ClusterDomain, "cluster-domain", manifest.DefaultClusterDomain, "internal domain of the cluster")
	f.StringVar(&o.LogLevel, "log-level", "info", "log level: trace, debug, info or error")
	f.BoolVar(&o.NetworkPolicy, "network-policy", true, "allow only Pods of the namespace to download artifacts")
	f.StringSliceVar(&o.Tolerations, "toleration-keys", nil, "keys of taints that the controllers tolerate")
	f.BoolVar(&o.AllNamespaces, "watch-all-namespaces", true,
		"reconcile objects in all namespaces, not only in that of the controllers")
	return c
}

// defaultTag returns the image tag that belongs to this binary.
func defaultTag() string {
	if Version == devVersion {
		return "latest"
	}
	return Version
}

// complete validates the flags and derives options from them.
func (o *installCommand) complete() error {
	o.Namespace = o.env.Namespace()
	o.Controllers = slices.Concat(o.components, o.extra)
	o.Image = cmp.Or(o.image, o.registry+"/sluice:"+o.imageTag)
	for _, c := range o.Controllers {
		if err := oneOf("components", c, options.AllControllers...); err != nil {
			return err
		}
	}
	return oneOf("log-level", o.LogLevel, "trace", "debug", "info", "error")
}

func (o *installCommand) run(ctx context.Context) error {
	objects, err := manifest.Install(o.InstallOptions)
	if err != nil {
		return err
	}
	if o.export {
		return manifest.Encode(o.Out, objects...)
	}
	ctx, cancel := o.WithTimeout(ctx)
	defer cancel()
	return o.apply(ctx, objects)
}

// apply applies the objects with the engine that the controllers use.
func (o *installCommand) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	cfg, err := o.Config()
	if err != nil {
		return err
	}
	target, err := apply.NewCluster(cfg, apply.ClusterOptions{FieldManager: "sluice-cli", WaitTimeout: o.Timeout})
	if err != nil {
		return err
	}
	defer target.Close()
	o.Step("installing %d objects into namespace %s", len(objects), o.InstallOptions.Namespace)
	o.Live("waiting for the cluster to serve the CustomResourceDefinitions")
	result, err := target.Apply(ctx, apply.Request{
		Owner:   apply.Owner{Group: "app.kubernetes.io", Namespace: o.InstallOptions.Namespace, Name: "sluice"},
		Objects: objects,
	})
	for _, c := range result.Changes {
		o.Done("%s %s", c.Ref, c.Action)
	}
	if err != nil {
		return cluster.Explain("installation failed", err)
	}
	if !o.CRDsOnly {
		o.Step("the controllers are starting. Run kubectl -n %s rollout status deployment/sluice to follow",
			o.InstallOptions.Namespace)
	}
	return nil
}
