package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

func (a *app) reconcile() *cobra.Command {
	c := group("reconcile", "Reconcile an object now, and wait until it is done", `  sluice reconcile source git app
  sluice reconcile source chart app --with-source
  sluice reconcile kustomization app --with-source`)
	a.perKind(c, func(k *kind) *cobra.Command {
		if k.passive || k.once {
			return nil
		}
		var withSource bool
		sub := &cobra.Command{
			Use:     k.words[0] + " NAME",
			Aliases: k.words[1:],
			Short:   "Reconcile " + k.one() + " now",
			Example: "  sluice reconcile " + k.path() + " NAME",
			Args:    exactlyOne,
			RunE: func(cmd *cobra.Command, args []string) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
				defer cancel()
				c, err := a.client()
				if err != nil {
					return err
				}
				return a.reconcileNow(ctx, c, k, types.NamespacedName{Namespace: a.namespace(), Name: args[0]},
					withSource)
			},
		}
		if k.source != nil {
			sub.Flags().BoolVar(&withSource, "with-source", false, "reconcile its source before")
		}
		return sub
	})
	return c
}

func exactlyOne(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("name one object, got %d. See %s --help", len(args), cmd.CommandPath())
	}
	return nil
}

// reconcileNow asks for a reconcile and waits until it was handled and has come to an end.
func (a *app) reconcileNow(ctx context.Context, c client.WithWatch, k *kind, key types.NamespacedName,
	withSource bool) error {
	obj, err := fetch(ctx, c, k, key)
	if err != nil {
		return err
	}
	if obj.Schedule().Suspended {
		return fmt.Errorf("%s '%s' is suspended. Run sluice resume %s %s -n %s", k.title(), key, k.path(), key.Name,
			key.Namespace)
	}
	if withSource {
		if err := a.reconcileSource(ctx, c, k, obj); err != nil {
			return err
		}
	}
	at := time.Now().Format(time.RFC3339Nano)
	a.step("asking for a reconcile of %s '%s'", k.title(), key)
	if err := annotate(ctx, c, obj, at); err != nil {
		return explain(fmt.Sprintf("cannot annotate %s '%s'", k.title(), key), err)
	}
	obj, err = a.await(ctx, c, k, key, func(o reconcile.Object) bool {
		// Someone may have asked again in the meantime: theirs counts for ours.
		return request(o) != "" && settled(o)
	})
	if err != nil {
		return err
	}
	return a.verdict(k, obj)
}

// reconcileSource reconciles what an object is built from. Of an ExternalArtifact that is what it was made from.
func (a *app) reconcileSource(ctx context.Context, c client.WithWatch, k *kind, obj reconcile.Object) error {
	ref := k.source(obj)
	source := byTitle(ref.Kind)
	if source == nil || source.passive && k.passive {
		return fmt.Errorf("the source of %s '%s' is %s '%s', which this command cannot reconcile. Leave "+
			"--with-source out",
			k.title(), client.ObjectKeyFromObject(obj), cmp.Or(ref.Kind, "unknown"), ref.Name)
	}
	key := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, obj.GetNamespace()), Name: ref.Name}
	if !source.passive {
		return a.reconcileNow(ctx, c, source, key, false)
	}
	made, err := fetch(ctx, c, source, key)
	if err != nil {
		return err
	}
	return a.reconcileSource(ctx, c, source, made)
}

func annotate(ctx context.Context, c client.Client, obj reconcile.Object, at string) error {
	before := obj.DeepCopyObject().(client.Object)
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[meta.ReconcileRequestAnnotation] = at
	obj.SetAnnotations(annotations)
	return c.Patch(ctx, obj, client.MergeFrom(before))
}

func fetch(ctx context.Context, c client.Client, k *kind, key types.NamespacedName) (reconcile.Object, error) {
	obj := k.new()
	err := c.Get(ctx, key, obj)
	if apierrors.IsNotFound(err) {
		return nil, notFound(k, key.Namespace, key.Name)
	}
	return obj, explain(fmt.Sprintf("cannot get %s '%s'", k.title(), key), err)
}

func notFound(k *kind, namespace, name string) error {
	return fmt.Errorf("%s '%s/%s' not found. See %s -A", k.title(), namespace, name, k.get())
}
