package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
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
	dirs := []string{"crd"}
	if !o.crdsOnly {
		dirs = append(dirs, "rbac", "manager")
	}
	var objects []*unstructured.Unstructured
	for _, dir := range dirs {
		err := fs.WalkDir(config.Files, dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := config.Files.ReadFile(name)
			if err != nil {
				return err
			}
			if dir == "manager" {
				b = bytes.ReplaceAll(b, []byte(defaultNamespace), []byte(namespace))
			}
			found, err := decode(b)
			objects = append(objects, found...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, obj := range objects {
		if obj.GetKind() == "Deployment" && o.image != "" {
			containers, _, err := unstructured.NestedSlice(obj.Object, "spec", "template", "spec", "containers")
			if err != nil || len(containers) == 0 {
				return nil, errors.Join(err, errors.New("the Deployment has no container"))
			}
			containers[0].(map[string]any)["image"] = o.image
			if err := unstructured.SetNestedSlice(obj.Object, containers, "spec", "template", "spec", "containers"); err != nil {
				return nil, err
			}
		}
	}
	return objects, nil
}

// decode reads the objects of a YAML stream.
func decode(b []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(b), 4096); ; {
		o := &unstructured.Unstructured{}
		err := d.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
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
