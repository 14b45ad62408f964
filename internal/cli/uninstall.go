package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// goneInterval is how often the cluster is asked whether an object has gone.
const goneInterval = 200 * time.Millisecond

// uninstallOptions of the uninstall command.
type uninstallOptions struct{ dryRun, keepNamespace, silent bool }

func (a *app) uninstall() *cobra.Command {
	var o uninstallOptions
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the controllers and the definitions; what they applied stays",
		Long: `Remove the controllers, then the definitions with all objects of these kinds. What those objects applied stays in the
cluster and is looked after by nobody from then on.`,
		Example: `  sluice uninstall --dry-run
  sluice uninstall --keep-namespace --silent`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !o.dryRun && !o.silent && !a.confirm("This deletes all GitRepository, Kustomization and other "+
				"objects of these kinds, and what else is in namespace "+a.namespace()+". Go on?") {
				return errors.New("nothing was removed: say y, or --silent to not be asked")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			defer cancel()
			return a.remove(ctx, o)
		},
	}
	f := c.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "say what would be removed and change nothing")
	f.BoolVar(&o.keepNamespace, "keep-namespace", false, "leave the namespace")
	f.BoolVarP(&o.silent, "silent", "s", false, "do not ask")
	return c
}

func (a *app) confirm(question string) bool {
	fmt.Fprintf(a.err, "%s [y/N] ", question)
	answer, err := a.in.ReadString('\n')
	return (err == nil || answer != "") && slices.Contains([]string{"y", "yes"},
		strings.ToLower(strings.TrimSpace(answer)))
}

// remove takes the controllers away first, so that none of them deletes what it applied when its objects go.
func (a *app) remove(ctx context.Context, o uninstallOptions) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	objects, err := manifests(a.namespace(), installOptions{networkPolicy: true})
	if err != nil {
		return err
	}
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
		stages = stages[:3]
	}
	for i, stage := range stages {
		if i == 1 {
			if err := a.letGo(ctx, c, o); err != nil {
				return err
			}
		}
		for _, u := range stage {
			if err := a.removeObject(ctx, c, u, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// letGo takes our finalizer off all objects of our kinds, which nobody else would from now on.
func (a *app) letGo(ctx context.Context, c client.Client, o uninstallOptions) error {
	for _, k := range kinds {
		list := k.list()
		if err := c.List(ctx, list); apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return explain("cannot list "+k.title()+" objects", err)
		}
		objects, err := items(list)
		if err != nil {
			return err
		}
		for _, obj := range objects {
			before := obj.DeepCopyObject().(client.Object)
			ours := controllerutil.RemoveFinalizer(obj, reconcile.Finalizer)
			generators := controllerutil.RemoveFinalizer(obj, extensionsv1beta1.ArtifactGeneratorFinalizer)
			if !ours && !generators || o.dryRun {
				continue
			}
			if err := c.Patch(ctx, obj, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
				return explain(fmt.Sprintf("cannot let go of %s '%s'", k.title(), client.ObjectKeyFromObject(obj)), err)
			}
		}
	}
	return nil
}

// removeObject deletes an object, and waits until it and what depends on it has gone.
func (a *app) removeObject(ctx context.Context, c client.Client, u *unstructured.Unstructured,
	o uninstallOptions) error {
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
		return explain("cannot delete "+what, err)
	case o.dryRun:
		a.done("%s would be deleted", what)
		return nil
	}
	if err := a.gone(ctx, c, u, what); err != nil {
		return explain(what+" is not gone", err)
	}
	return nil
}

// gone waits until an object that was deleted is no longer there, and says so.
func (a *app) gone(ctx context.Context, c client.Client, o client.Object, what string) error {
	a.live("waiting for %s to go", what)
	key, uid := client.ObjectKeyFromObject(o), o.GetUID()
	err := wait.PollUntilContextCancel(ctx, goneInterval, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, key, o)
		return apierrors.IsNotFound(err) || uid != "" && o.GetUID() != uid, client.IgnoreNotFound(err)
	})
	if err == nil {
		a.done("%s deleted", what)
	}
	return err
}
