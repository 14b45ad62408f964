package resourceset

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	inputsv1 "github.com/sluice-gitops/sluice/api/inputs/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/build/expand"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// anyProvider is the name by which ResourceSets with a selector refer to all providers of their namespace.
const anyProvider = "*"

// providers are the kinds of providers of inputs.
var providers = map[string]struct {
	schema.GroupVersionKind
	new  func() reconcile.Object
	list func() client.ObjectList
}{
	controlplanev1.ResourceSetInputProviderKind: {
		controlplanev1.GroupVersion.WithKind(controlplanev1.ResourceSetInputProviderKind),
		func() reconcile.Object { return &controlplanev1.ResourceSetInputProvider{} },
		func() client.ObjectList { return &controlplanev1.ResourceSetInputProviderList{} },
	},
	inputsv1.ClusterInputProviderKind: {
		inputsv1.GroupVersion.WithKind(inputsv1.ClusterInputProviderKind),
		func() reconcile.Object { return &inputsv1.ClusterInputProvider{} },
		func() client.ObjectList { return &inputsv1.ClusterInputProviderList{} },
	},
}

// kindOf returns the kind of a provider that a ResourceSet refers to.
func kindOf(from controlplanev1.InputProviderReference) string {
	return cmp.Or(from.Kind, controlplanev1.ResourceSetInputProviderKind)
}

// exported returns the inputs of a provider.
func exported(o reconcile.Object) []controlplanev1.InputSet {
	switch p := o.(type) {
	case *controlplanev1.ResourceSetInputProvider:
		return p.Status.ExportedInputs
	case *inputsv1.ClusterInputProvider:
		return p.Status.ExportedInputs
	}
	return nil
}

// providerRefs returns references to the providers of inputs.
func providerRefs(obj *controlplanev1.ResourceSet) (refs []reconcile.Ref) {
	for _, from := range obj.Spec.InputsFrom {
		refs = append(refs, reconcile.RefTo(providers[kindOf(from)].GroupKind(), obj.Namespace,
			cmp.Or(from.Name, anyProvider)))
	}
	return refs
}

// Observe enqueues ResourceSets when the inputs of their providers change.
func (c *Controller) Observe(ctx context.Context, objects cache.Cache) error {
	return errors.Join(
		observe(ctx, c.Clusters.Edges, objects, &controlplanev1.ResourceSetInputProvider{}),
		observe(ctx, c.Clusters.Edges, objects, &inputsv1.ClusterInputProvider{}),
		c.dependencies().Observe(ctx, c.Clusters.Edges, objects, func(_, _ *controlplanev1.ResourceSet) bool {
			return false // readiness and generations count in any case
		}),
	)
}

func observe[T reconcile.Object](ctx context.Context, edges *reconcile.Edges, objects cache.Cache, kind T) error {
	gk := providers[reflect.TypeOf(kind).Elem().Name()].GroupKind()
	changed := func(before, after T) bool {
		return !equality.Semantic.DeepEqual(exported(before), exported(after)) ||
			!equality.Semantic.DeepEqual(before.GetLabels(), after.GetLabels()) ||
			reconcile.IsReady(before) != reconcile.IsReady(after)
	}
	for _, name := range []string{"", anyProvider} {
		err := reconcile.ObserveAs(ctx, edges, objects, kind, func(p T) reconcile.Ref {
			return reconcile.RefTo(gk, p.GetNamespace(), cmp.Or(name, p.GetName()))
		}, changed)
		if err != nil {
			return err
		}
	}
	return nil
}

// Providers returns the inputs of a ResourceSet: its own, then those of its providers by name. It returns an outcome
// while a provider has not exported inputs yet: nothing may be pruned because of that.
func Providers(ctx context.Context, reader client.Reader,
	obj *controlplanev1.ResourceSet) ([]expand.Provider, *reconcile.Outcome, error) {
	var all []expand.Provider
	if len(obj.Spec.Inputs) > 0 {
		own, err := inputsOf(controlplanev1.GroupVersion.WithKind(controlplanev1.ResourceSetKind), obj, obj.Spec.Inputs)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, own)
	}
	found, err := inputProviders(ctx, reader, obj)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range found {
		if len(exported(p.Object)) == 0 && !reconcile.IsReady(p.Object) {
			return nil, ptr.To(reconcile.Waiting(meta.DependencyNotReadyReason, "%s '%s/%s' has exported no inputs yet",
				p.Kind, p.GetNamespace(), p.GetName())), nil
		}
		inputs, err := inputsOf(p.GroupVersionKind, p, exported(p.Object))
		if err != nil {
			return nil, nil, err
		}
		all = append(all, inputs)
	}
	return all, nil, nil
}

func inputsOf(gvk schema.GroupVersionKind, o client.Object,
	inputs []controlplanev1.InputSet) (expand.Provider, error) {
	raw, err := json.Marshal(inputs)
	return expand.Provider{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: o.GetNamespace(),
		Name: o.GetName(), Inputs: raw}, err
}

// inputProvider is a provider of inputs with its kind.
type inputProvider struct {
	reconcile.Object
	schema.GroupVersionKind
}

// inputProviders returns the providers of spec.inputsFrom, each once, by kind and name.
func inputProviders(ctx context.Context, reader client.Reader,
	obj *controlplanev1.ResourceSet) ([]inputProvider, error) {
	found := map[string]inputProvider{}
	add := func(gvk schema.GroupVersionKind, o reconcile.Object) {
		found[gvk.GroupKind().String()+"/"+o.GetName()] = inputProvider{o, gvk}
	}
	for i, from := range obj.Spec.InputsFrom {
		kind := providers[kindOf(from)]
		if from.Selector == nil {
			p := kind.new()
			err := reader.Get(ctx, types.NamespacedName{Namespace: obj.Namespace, Name: from.Name}, p)
			if apierrors.IsNotFound(err) {
				return nil, fault.New(meta.BuildFailedReason, "%s '%s/%s' not found", kind.Kind, obj.Namespace,
					from.Name).WithHint("Create it, or remove it from spec.inputsFrom").Final()
			}
			if err != nil {
				return nil, err
			}
			add(kind.GroupVersionKind, p)
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(from.Selector)
		if err != nil {
			return nil, fault.New(meta.BuildFailedReason, "spec.inputsFrom[%d].selector is invalid", i).
				Because(err).Final()
		}
		list := kind.list()
		if err := reader.List(ctx, list, client.InNamespace(obj.Namespace),
			client.MatchingLabelsSelector{Selector: selector}); err != nil {
			return nil, fmt.Errorf("cannot list objects of the kind %s: %w", kind.Kind, err)
		}
		if err := apimeta.EachListItem(list, func(o runtime.Object) error {
			add(kind.GroupVersionKind, o.(reconcile.Object))
			return nil
		}); err != nil {
			return nil, err
		}
	}
	sorted := make([]inputProvider, 0, len(found))
	for _, key := range slices.Sorted(maps.Keys(found)) {
		sorted = append(sorted, found[key])
	}
	return sorted, nil
}
