package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/manager"
)

func (a *app) export() *cobra.Command {
	c := group("export", "Print objects as YAML to keep in git: what was declared, without what the cluster added",
		`  sluice export source git app > app.yaml
  sluice export kustomization --all -n apps`)
	var all bool
	c.PersistentFlags().BoolVar(&all, "all", false, "all objects of the namespace")
	a.perKind(c, func(k *kind) *cobra.Command { return a.exportOf(k, &all) })
	return c
}

func (a *app) exportOf(k *kind, all *bool) *cobra.Command {
	return &cobra.Command{
		Use:     k.words[0] + " NAME...",
		Aliases: k.words[1:],
		Short:   "Print " + k.title() + " objects as they were declared",
		Example: fmt.Sprintf("  sluice export %s NAME\n  sluice export %s --all", k.path(), k.path()),
		Args:    namesOr(all),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			defer cancel()
			return a.exportKind(ctx, k, args)
		},
	}
}

// exportKind prints the named objects, or all when none is named.
func (a *app) exportKind(ctx context.Context, k *kind, names []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	names, err = a.orAll(ctx, c, k, names)
	if err != nil {
		return err
	}
	var failures []error
	for _, name := range names {
		obj, err := fetch(ctx, c, k, types.NamespacedName{Namespace: a.namespace(), Name: name})
		if err == nil {
			err = a.printDeclared(obj)
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// orAll returns the names, or when there are none those of all objects in the namespace.
func (a *app) orAll(ctx context.Context, c client.Client, k *kind, names []string) ([]string, error) {
	if len(names) > 0 {
		return names, nil
	}
	list := k.list()
	if err := c.List(ctx, list, client.InNamespace(a.namespace())); err != nil {
		return nil, explain("cannot list "+k.title()+" objects", err)
	}
	objects, err := items(list)
	if err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		a.step("no %s in namespace %s", k.title(), a.namespace())
	}
	for _, o := range objects {
		names = append(names, o.GetName())
	}
	return names, nil
}

// printDeclared prints what was declared of objects.
func (a *app) printDeclared(objects ...client.Object) error {
	for _, o := range objects {
		u, err := declared(o)
		if err == nil {
			err = a.printYAML(u)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// declared returns an object as a person would declare it: without its status, and without what the cluster
// and its tools add.
func declared(o client.Object) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(o, manager.Scheme())
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	content["metadata"] = map[string]any{}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	u.SetName(o.GetName())
	u.SetNamespace(o.GetNamespace())
	u.SetLabels(o.GetLabels())
	annotations := map[string]string{}
	for key, value := range o.GetAnnotations() {
		if key != meta.ReconcileRequestAnnotation && key != corev1.LastAppliedConfigAnnotation {
			annotations[key] = value
		}
	}
	if len(annotations) > 0 {
		u.SetAnnotations(annotations)
	}
	return u, nil
}

// printYAML prints objects as a stream.
func (a *app) printYAML(objects ...*unstructured.Unstructured) error {
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
