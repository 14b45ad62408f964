package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/install"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// uninstaller is `sluice uninstall`.
type uninstaller struct {
	*env
	dryRun, keepNamespace, silent bool
	operatorRuns                  bool // Flux Operator, which needs its finalizers
}

func newUninstallCommand(e *env) *cobra.Command {
	o := &uninstaller{env: e}
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the controllers and the CustomResourceDefinitions",
		Long: `Remove the controllers, then the CustomResourceDefinitions with all objects of
these kinds. What those objects applied stays in the cluster, and nothing
manages it any longer.`,
		Example: `  sluice uninstall --dry-run
  sluice uninstall --keep-namespace --silent`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := c.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be removed, and change nothing")
	f.BoolVar(&o.keepNamespace, "keep-namespace", false, "do not delete the namespace")
	f.BoolVarP(&o.silent, "silent", "s", false, "do not ask for confirmation")
	return c
}

func (o *uninstaller) run(ctx context.Context) error {
	if !o.dryRun && !o.silent && !o.Confirm("This deletes all GitRepository, Kustomization and other objects of "+
		"Sluice, and everything in namespace "+o.Namespace()+". Continue?") {
		return errors.New("cancelled: nothing was removed. Use --silent to skip the question")
	}
	ctx, cancel := o.WithTimeout(ctx)
	defer cancel()
	c, err := o.Client()
	if err != nil {
		return err
	}
	objects, shared, err := o.installed(ctx)
	if err != nil {
		return err
	}
	if len(objects) == 0 {
		o.Step("nothing is installed in namespace '%s': nothing was removed", o.Namespace())
		return nil
	}
	for i, stage := range o.stages(objects) {
		if i == 1 && !shared {
			if err := o.removeFinalizers(ctx, c); err != nil {
				return err
			}
		}
		for _, u := range stage {
			if err := o.remove(ctx, c, u); err != nil {
				return err
			}
		}
	}
	return nil
}

// installed returns the objects of every way to install that exist, without those that belong to Flux. It reports
// whether others need the definitions: Flux, or controllers of Sluice in another namespace. Those are not returned.
func (o *uninstaller) installed(ctx context.Context) (objects []*unstructured.Unstructured, shared bool, err error) {
	cfg, err := o.Config()
	if err != nil {
		return nil, false, err
	}
	t, err := install.Connect(cfg, o.Timeout)
	if err != nil {
		return nil, false, err
	}
	defer t.Close()
	flux, err := t.RunningFlux(ctx)
	if err != nil {
		return nil, false, err
	}
	elsewhere, err := o.elsewhere(ctx, t)
	if err != nil {
		return nil, false, err
	}
	if o.operatorRuns, err = t.RunsOperator(ctx); err != nil {
		return nil, false, err
	}
	if objects, err = t.Present(ctx, o.Namespace()); err != nil {
		return nil, false, err
	}
	if len(flux) > 0 {
		o.Warn("Flux runs in this cluster: the CustomResourceDefinitions, their objects and the namespace are kept")
		objects = slices.DeleteFunc(objects, func(u *unstructured.Unstructured) bool {
			return u.GetKind() == "CustomResourceDefinition" || u.GetKind() == "Namespace"
		})
	}
	if elsewhere != "" {
		o.Warn("Sluice also runs in namespace '%s': the CustomResourceDefinitions, their objects, and the roles and "+
			"policies of the cluster are kept", elsewhere)
		objects = slices.DeleteFunc(objects, func(u *unstructured.Unstructured) bool {
			return u.GetNamespace() == "" && u.GetKind() != "Namespace"
		})
	}
	return objects, len(flux) > 0 || elsewhere != "", nil
}

// elsewhere returns another namespace in which controllers of Sluice are installed, or "". It fails if they are
// installed only there.
func (o *uninstaller) elsewhere(ctx context.Context, t *install.Target) (namespace string, err error) {
	own, err := t.OwnDeployments(ctx, "")
	here := false
	for _, u := range own {
		if u.GetNamespace() == o.Namespace() {
			here = true
		} else {
			namespace = u.GetNamespace()
		}
	}
	if err == nil && !here && namespace != "" {
		err = fmt.Errorf("Sluice is installed in namespace '%s', not in '%s'. Nothing was removed. Use -n %s",
			namespace, o.Namespace(), namespace)
	}
	return namespace, err
}

// stages returns the objects in the order of their deletion. The controllers are first, so that they do not prune what
// they applied when their objects are deleted.
func (o *uninstaller) stages(objects []*unstructured.Unstructured) [][]*unstructured.Unstructured {
	stages := make([][]*unstructured.Unstructured, 4)
	for _, u := range objects {
		stage := 2
		switch u.GetKind() {
		case "Deployment":
			stage = 0
		case "CustomResourceDefinition":
			stage = 1
		case "Namespace":
			stage = 3
		}
		stages[stage] = append(stages[stage], u)
	}
	if o.keepNamespace {
		return stages[:3]
	}
	return stages
}

// removeFinalizers removes our finalizers from all objects, since no controller will.
func (o *uninstaller) removeFinalizers(ctx context.Context, c client.Client) error {
	for _, k := range kind.All() {
		if gvk, err := apiutil.GVKForObject(k.New(), c.Scheme()); err != nil || o.operatorRuns &&
			gvk.Group == controlplanev1.GroupVersion.Group {
			continue
		}
		objects, err := cluster.List(ctx, c, k)
		if errors.Is(err, cluster.ErrNotInstalled) {
			continue
		}
		if err != nil {
			return err
		}
		for _, obj := range objects {
			before := obj.DeepCopyObject().(client.Object)
			removed := false
			for _, f := range []string{reconcile.Finalizer, extensionsv1beta1.ArtifactGeneratorFinalizer,
				controlplanev1.Finalizer} {
				removed = controllerutil.RemoveFinalizer(obj, f) || removed
			}
			if !removed || o.dryRun {
				continue
			}
			if err := c.Patch(ctx, obj, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
				return cluster.Explain(fmt.Sprintf("cannot remove the finalizer of %s '%s'", k.Name(),
					client.ObjectKeyFromObject(obj)), err)
			}
		}
	}
	return nil
}

// remove deletes an object, and waits until it and its dependents are gone.
func (o *uninstaller) remove(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
	what := u.GetKind() + "/" + u.GetName()
	options := []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationForeground)}
	if o.dryRun {
		options = append(options, client.DryRunAll)
	}
	err := c.Delete(ctx, u, options...)
	switch {
	case apierrors.IsNotFound(err), apimeta.IsNoMatchError(err):
		return nil
	case err != nil:
		return cluster.Explain("cannot delete "+what, err)
	case o.dryRun:
		o.Done("%s would be deleted", what)
		return nil
	}
	return cluster.Explain("cannot check the deletion of "+what, o.awaitDeleted(ctx, c, u, what))
}
