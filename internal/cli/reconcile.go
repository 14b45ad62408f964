package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/model/lineage"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// reconciler requests reconciles and waits for their results.
type reconciler struct {
	*env
	client client.WithWatch
	also   []string // annotations that get the value of the request too
}

func newReconcileCommand(e *env) *cobra.Command {
	c := newGroup("reconcile", "Reconcile an object now, and wait for the result", `  sluice reconcile source git app
  sluice reconcile source chart app --with-source
  sluice reconcile kustomization app --with-source
  sluice reconcile helmrelease app --force`)
	e.addPerKind(c, func(k *kind.Kind) *cobra.Command {
		if k.ReadOnly || k.RunsOnce {
			return nil
		}
		return newReconcileKindCommand(e, k)
	})
	return c
}

func newReconcileKindCommand(e *env, k *kind.Kind) *cobra.Command {
	var withSource, force, reset, all bool
	c := &cobra.Command{
		Use:     k.Words[0] + " NAME",
		Aliases: k.Words[1:],
		Short:   "Reconcile " + k.WithArticle() + " now",
		Example: "  sluice reconcile " + k.Path() + " NAME\n  sluice reconcile " + k.Path() + " --all -n NAMESPACE",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case all && len(args) > 0:
				return usagef("--all and %q exclude each other", args[0])
			case all:
				return nil
			}
			return exactlyOne(cmd, args)
		},
		RunE: e.bounded(func(ctx context.Context, args []string) error {
			c, err := e.Client()
			if err != nil {
				return err
			}
			r := reconciler{env: e, client: c}
			if force {
				r.also = append(r.also, helmv2.ForceRequestAnnotation)
			}
			if reset {
				r.also = append(r.also, helmv2.ResetRequestAnnotation)
			}
			if all {
				return r.all(ctx, k, withSource)
			}
			return r.run(ctx, k, e.key(args[0]), withSource)
		}),
	}
	c.Flags().BoolVar(&all, "all", false, "reconcile all objects of the kind in the namespace, but not suspended ones")
	if k.HasSource {
		c.Flags().BoolVar(&withSource, "with-source", false, "reconcile its source first")
	}
	if k.Name() == helmv2.HelmReleaseKind {
		c.Flags().BoolVar(&force, "force", false, "install or upgrade once, even without a change")
		c.Flags().BoolVar(&reset, "reset", false, "reset the failure counters, so that a failed action is tried again")
	}
	return c
}

// all reconciles all objects of a kind in the namespace, and reports those that are not Ready.
func (r reconciler) all(ctx context.Context, k *kind.Kind, withSource bool) error {
	objects, err := cluster.List(ctx, r.client, k, client.InNamespace(r.Namespace()))
	if err != nil {
		return err
	}
	if len(objects) == 0 {
		r.Step("no %s found in namespace %s", k.Name(), r.Namespace())
	}
	var failures []error
	for _, o := range objects {
		if o.Schedule().Suspended {
			r.Step("%s '%s' is suspended", k.Name(), client.ObjectKeyFromObject(o))
			continue
		}
		if err := r.run(ctx, k, client.ObjectKeyFromObject(o), withSource); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// run requests a reconcile and waits until the object is Ready, failed or held.
func (r reconciler) run(ctx context.Context, k *kind.Kind, key types.NamespacedName, withSource bool) error {
	obj, err := cluster.Get(ctx, r.client, k, key)
	if err != nil {
		return err
	}
	if obj.Schedule().Suspended {
		return fmt.Errorf("%s '%s' is suspended. Run sluice resume %s %s -n %s", k.Name(), key, k.Path(), key.Name,
			key.Namespace)
	}
	if withSource {
		if err := r.source(ctx, k, obj); err != nil {
			return err
		}
	}
	r.Step("requesting a reconcile of %s '%s'", k.Name(), key)
	if err := r.request(ctx, obj); err != nil {
		return cluster.Explain(fmt.Sprintf("cannot annotate %s '%s'", k.Name(), key), err)
	}
	obj, err = r.await(ctx, r.client, k, key, func(o reconcile.Object) bool {
		// The annotation may be another user's later request, which counts too.
		return cluster.ReconcileRequest(o) != "" && cluster.IsSettled(o)
	})
	if err != nil {
		return err
	}
	return r.reportReady(k, obj)
}

// source reconciles the source of an object. For an ExternalArtifact this is the object that made it.
func (r reconciler) source(ctx context.Context, k *kind.Kind, obj reconcile.Object) error {
	var ref meta.ObjectReference
	if refs := lineage.Sources(obj); len(refs) > 0 {
		ref = refs[0]
	}
	source := kind.ByName(ref.Kind)
	if source == nil || source.ReadOnly && k.ReadOnly {
		return fmt.Errorf("the source of %s '%s' is %s '%s', which cannot be reconciled by this command. Omit "+
			"--with-source", k.Name(), client.ObjectKeyFromObject(obj), cmp.Or(ref.Kind, "unknown"), ref.Name)
	}
	key := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, obj.GetNamespace()), Name: ref.Name}
	r.also = nil
	if !source.ReadOnly {
		return r.run(ctx, source, key, source.Name() == sourcev1.HelmChartKind) // a chart with its repository
	}
	made, err := cluster.Get(ctx, r.client, source, key)
	if err != nil {
		return err
	}
	return r.source(ctx, source, made)
}

// request annotates an object with the current time, which makes its controller reconcile it.
func (r reconciler) request(ctx context.Context, obj reconcile.Object) error {
	before := obj.DeepCopyObject().(client.Object)
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	now := time.Now().Format(time.RFC3339Nano)
	annotations[meta.ReconcileRequestAnnotation] = now
	for _, name := range r.also {
		annotations[name] = now
	}
	obj.SetAnnotations(annotations)
	return r.client.Patch(ctx, obj, client.MergeFrom(before))
}
