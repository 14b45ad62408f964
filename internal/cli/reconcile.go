package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/manager"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

func (a *app) reconcile() *cobra.Command {
	c := &cobra.Command{
		Use:   "reconcile",
		Short: "Reconcile an object now, and wait until it is done",
		Example: `  sluice reconcile source git app
  sluice reconcile kustomization app --with-source`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	a.perKind(c, func(k *kind) *cobra.Command {
		var withSource bool
		sub := &cobra.Command{
			Use:     k.words[0] + " NAME",
			Aliases: k.words[1:],
			Short:   "Reconcile a " + k.title() + " now",
			Example: "  sluice reconcile " + k.path(k.words[0]) + " NAME",
			Args:    exactlyOne,
			RunE: func(cmd *cobra.Command, args []string) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
				defer cancel()
				c, err := a.client()
				if err != nil {
					return err
				}
				return a.reconcileNow(ctx, c, k, types.NamespacedName{Namespace: a.namespace(), Name: args[0]}, withSource)
			},
		}
		if k.source != nil {
			sub.Flags().BoolVar(&withSource, "with-source", false, "reconcile its source before")
		}
		return sub
	})
	return c
}

func exactlyOne(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("name one object, got %d", len(args))
	}
	return nil
}

// reconcileNow asks for a reconcile and waits until it was handled and has come to an end.
func (a *app) reconcileNow(ctx context.Context, c client.WithWatch, k *kind, key types.NamespacedName, withSource bool) error {
	obj, err := a.fetch(ctx, c, k, key)
	if err != nil {
		return err
	}
	if obj.Schedule().Suspended {
		return fmt.Errorf("%s '%s' is suspended. Run sluice resume %s %s", k.title(), key, k.path(k.words[0]), key.Name)
	}
	if withSource {
		ref, _ := k.source(obj)
		source := byTitle(ref.kind)
		if source == nil {
			return fmt.Errorf("the source of %s '%s' is a %s, which this command cannot reconcile", k.title(), key, ref.kind)
		}
		if err := a.reconcileNow(ctx, c, source, types.NamespacedName{Namespace: ref.namespace, Name: ref.name}, false); err != nil {
			return err
		}
	}
	at := time.Now().Format(time.RFC3339Nano)
	a.step("annotating %s '%s'", k.title(), key)
	if err := annotate(ctx, c, obj, at); err != nil {
		return err
	}
	done := func(o reconcile.Object) bool { return o.CommonStatus().LastHandledReconcileAt == at && settled(o) }
	if obj, err = a.await(ctx, c, k, key, done); err != nil {
		return err
	}
	return a.verdict(k, obj)
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

// settled tells whether an object has come to an end for now: Ready or failed, not under way.
func settled(o reconcile.Object) bool {
	c := apimeta.FindStatusCondition(o.CommonStatus().Conditions, reconcile.TypeReady)
	return c != nil && c.Status != metav1.ConditionUnknown && o.CommonStatus().ObservedGeneration == o.GetGeneration()
}

// verdict says how it ended.
func (a *app) verdict(k *kind, obj reconcile.Object) error {
	c := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, reconcile.TypeReady)
	if c.Status != metav1.ConditionTrue {
		a.clear()
		return fmt.Errorf("%s '%s/%s' is not ready: %s: %s", k.title(), obj.GetNamespace(), obj.GetName(), c.Reason, c.Message)
	}
	a.done("%s", c.Message)
	return nil
}

func (a *app) fetch(ctx context.Context, c client.Client, k *kind, key types.NamespacedName) (reconcile.Object, error) {
	obj := k.new()
	err := c.Get(ctx, key, obj)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%s '%s' not found. See sluice get %s -A", k.title(), key, k.path(plural(k)))
	case err != nil:
		return nil, listError(k, err)
	}
	return obj, nil
}

// await watches an object until done says so, with its state on a live line.
func (a *app) await(ctx context.Context, c client.WithWatch, k *kind, key types.NamespacedName, done func(reconcile.Object) bool) (reconcile.Object, error) {
	var last reconcile.Object
	for {
		w, err := c.Watch(ctx, k.list(), &client.ListOptions{
			Namespace: key.Namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", key.Name),
		})
		if err != nil {
			return nil, awaitError(ctx, k, key, last, err)
		}
		for e := range w.ResultChan() {
			obj, ok := e.Object.(reconcile.Object)
			if !ok {
				continue
			}
			last = obj
			if done(obj) {
				w.Stop()
				return obj, nil
			}
			a.live("waiting for %s '%s': %s", k.title(), key, state(obj))
		}
		w.Stop()
		if ctx.Err() != nil {
			return nil, awaitError(ctx, k, key, last, ctx.Err())
		}
	}
}

func awaitError(ctx context.Context, k *kind, key types.NamespacedName, last reconcile.Object, err error) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	if last == nil || last.CommonStatus().LastHandledReconcileAt != last.GetAnnotations()[meta.ReconcileRequestAnnotation] {
		return fmt.Errorf("%s '%s' was not handled in time. Are the controllers running? Raise --timeout if they are busy", k.title(), key)
	}
	return fmt.Errorf("%s '%s' was not done in time: %s. Raise --timeout", k.title(), key, state(last))
}

// state is the message of Ready.
func state(o reconcile.Object) string {
	if c := apimeta.FindStatusCondition(o.CommonStatus().Conditions, reconcile.TypeReady); c != nil {
		return c.Message
	}
	return "not reconciled yet"
}

func apiutilGVK(o client.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, manager.Scheme())
}
