package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/manager"
)

func (a *app) install() *cobra.Command {
	var o installOptions
	c := &cobra.Command{
		Use:   "install",
		Short: "Install the definitions and the controllers, or print their manifests",
		Long: `Install the definitions and the controllers. What stands already is brought up to date; running it again changes nothing.
The order is the one the controllers apply by: definitions first, until the cluster serves them.`,
		Example: `  sluice install                     # apply to the cluster of the kubeconfig
  sluice install --export > sluice.yaml
  sluice install --crds-only         # the definitions alone, for controllers that run outside`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			objects, err := manifests(a.namespace(), o)
			if err != nil {
				return err
			}
			if o.export {
				return a.printYAML(objects...)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			defer cancel()
			return a.applyInstall(ctx, objects, o)
		},
	}
	f := c.Flags()
	f.BoolVar(&o.export, "export", false, "print the manifests and change nothing")
	f.BoolVar(&o.crdsOnly, "crds-only", false, "only the CustomResourceDefinitions")
	f.StringSliceVar(&o.components, "components", manager.AllControllers, "controllers to run")
	f.StringSliceVar(&o.extra, "components-extra", nil, "controllers to run beside those of --components")
	f.StringVar(&o.image, "image", "", "container image of the controllers (default: --registry and --version)")
	f.StringVar(&o.registry, "registry", "ghcr.io/sluice-gitops", "registry of the container image")
	f.StringVar(&o.version, "version", defaultTag(), "tag of the container image")
	f.StringVar(&o.pullSecret, "image-pull-secret", "", "Secret to pull the container image with")
	f.StringVar(&o.clusterDomain, "cluster-domain", clusterDomain, "internal domain of the cluster")
	f.StringVar(&o.logLevel, "log-level", "info", "trace, debug, info or error")
	f.BoolVar(&o.networkPolicy, "network-policy", true, "let only the namespace reach the artifacts")
	f.StringSliceVar(&o.tolerations, "toleration-keys", nil, "taints that the controllers tolerate")
	f.BoolVar(&o.allNamespaces, "watch-all-namespaces", true, "watch all namespaces, else only the controllers' own")
	return c
}

// check finds what would only fail in the cluster, where nobody looks.
func (o installOptions) check() error {
	for _, c := range o.controllers() {
		if !slices.Contains(manager.AllControllers, c) {
			return usagef("there is no component %q: choose from %s", c, strings.Join(manager.AllControllers, ", "))
		}
	}
	if !slices.Contains([]string{"trace", "debug", "info", "error"}, o.logLevel) {
		return usagef("unknown --log-level %q: choose trace, debug, info or error", o.logLevel)
	}
	return nil
}

// applyInstall applies the objects as the controllers apply theirs.
func (a *app) applyInstall(ctx context.Context, objects []*unstructured.Unstructured, o installOptions) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	cluster, err := apply.NewCluster(cfg, apply.ClusterOptions{FieldManager: "sluice-cli", WaitTimeout: a.timeout})
	if err != nil {
		return err
	}
	defer cluster.Close()
	a.step("installing %d objects into namespace %s", len(objects), a.namespace())
	a.live("waiting for the cluster to serve the definitions")
	result, err := cluster.Apply(ctx, apply.Request{
		Owner:   apply.Owner{Group: "app.kubernetes.io", Namespace: a.namespace(), Name: "sluice"},
		Objects: objects,
	})
	for _, c := range result.Changes {
		a.done("%s %s", c.Ref, c.Action)
	}
	if err != nil {
		return explain("the install failed", err)
	}
	if !o.crdsOnly {
		a.step("the controllers start now: kubectl -n %s rollout status deployment/sluice shows how", a.namespace())
	}
	return nil
}
