package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/apply"
)

// installOptions of the install command.
type installOptions struct {
	export, crdsOnly bool
	image            string
}

func (a *app) install() *cobra.Command {
	var o installOptions
	c := &cobra.Command{
		Use:   "install",
		Short: "Install the definitions and the controllers, or print their manifests",
		Example: `  sluice install                     # apply to the cluster of the kubeconfig
  sluice install --export > sluice.yaml
  sluice install --crds-only         # the definitions alone, for controllers that run outside`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			objects, err := manifests(a.namespace(), o)
			if err != nil {
				return err
			}
			if o.export {
				return a.export(objects)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			defer cancel()
			return a.applyInstall(ctx, objects)
		},
	}
	f := c.Flags()
	f.BoolVar(&o.export, "export", false, "print the manifests and change nothing")
	f.BoolVar(&o.crdsOnly, "crds-only", false, "only the CustomResourceDefinitions")
	f.StringVar(&o.image, "image", "", "container image of the controllers")
	return c
}

// manifests returns the objects to install in a namespace.
func manifests(namespace string, o installOptions) ([]*unstructured.Unstructured, error) {
	objects, err := config.Definitions()
	if err != nil || o.crdsOnly {
		return objects, err
	}
	controllers, err := config.Controllers(namespace)
	if err != nil {
		return nil, err
	}
	for _, obj := range controllers {
		if obj.GetKind() == "Deployment" && o.image != "" {
			if err := setImage(obj, o.image); err != nil {
				return nil, err
			}
		}
	}
	return append(objects, controllers...), nil
}

func setImage(deployment *unstructured.Unstructured, image string) error {
	path := []string{"spec", "template", "spec", "containers"}
	containers, _, err := unstructured.NestedSlice(deployment.Object, path...)
	if err != nil || len(containers) == 0 {
		return errors.Join(err, errors.New("the Deployment has no container"))
	}
	containers[0].(map[string]any)["image"] = image
	return unstructured.SetNestedSlice(deployment.Object, containers, path...)
}

func (a *app) export(objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		b, err := yaml.Marshal(o.Object)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(a.out, "---\n%s", b); err != nil {
			return err
		}
	}
	return nil
}

// applyInstall applies the objects as the controllers apply theirs: definitions first, and established.
func (a *app) applyInstall(ctx context.Context, objects []*unstructured.Unstructured) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	cluster, err := apply.NewCluster(cfg, apply.ClusterOptions{FieldManager: "sluice-cli"})
	if err != nil {
		return err
	}
	defer cluster.Close()
	a.step("installing %d objects", len(objects))
	result, err := cluster.Apply(ctx, apply.Request{
		Owner:   apply.Owner{Group: "app.kubernetes.io", Namespace: a.namespace(), Name: "sluice"},
		Objects: objects,
	})
	for _, c := range result.Changes {
		a.done("%s %s", strings.ToLower(c.Ref.Kind)+"/"+c.Ref.Name, c.Action)
	}
	return err
}
