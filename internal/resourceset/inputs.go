package resourceset

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/resourceset/expand"
)

// anyProvider is the name by which ResourceSets with a selector refer to all providers of their namespace.
const anyProvider = "*"

// providerRefs returns references to the providers of inputs.
func providerRefs(obj *controlplanev1.ResourceSet) (refs []reconcile.Ref) {
	for _, from := range obj.Spec.InputsFrom {
		refs = append(refs, reconcile.RefTo(providerKind, obj.Namespace, cmp.Or(from.Name, anyProvider)))
	}
	return refs
}

// Observe enqueues ResourceSets when the inputs of their providers change.
func (c *Controller) Observe(ctx context.Context, objects cache.Cache) error {
	changed := func(before, after *controlplanev1.ResourceSetInputProvider) bool {
		return !equality.Semantic.DeepEqual(before.Status.ExportedInputs, after.Status.ExportedInputs) ||
			!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
			reconcile.IsReady(before) != reconcile.IsReady(after)
	}
	for _, name := range []string{"", anyProvider} {
		err := reconcile.ObserveAs(ctx, c.Clusters.Edges, objects, &controlplanev1.ResourceSetInputProvider{},
			func(p *controlplanev1.ResourceSetInputProvider) reconcile.Ref {
				return reconcile.RefTo(providerKind, p.Namespace, cmp.Or(name, p.Name))
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
		own, err := inputsOf(controlplanev1.ResourceSetKind, obj, obj.Spec.Inputs)
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
		if len(p.Status.ExportedInputs) == 0 && !reconcile.IsReady(p) {
			return nil, ptr.To(reconcile.Waiting(meta.DependencyNotReadyReason, "ResourceSetInputProvider '%s/%s' has "+
				"exported no inputs yet", p.Namespace, p.Name)), nil
		}
		inputs, err := inputsOf(controlplanev1.ResourceSetInputProviderKind, p, p.Status.ExportedInputs)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, inputs)
	}
	return all, nil, nil
}

func inputsOf(kind string, o client.Object, inputs []controlplanev1.InputSet) (expand.Provider, error) {
	raw, err := json.Marshal(inputs)
	return expand.Provider{APIVersion: controlplanev1.GroupVersion.String(), Kind: kind, Namespace: o.GetNamespace(),
		Name: o.GetName(), Inputs: raw}, err
}

// inputProviders returns the providers of spec.inputsFrom, each once, by name.
func inputProviders(ctx context.Context, reader client.Reader,
	obj *controlplanev1.ResourceSet) ([]*controlplanev1.ResourceSetInputProvider, error) {
	found := map[string]*controlplanev1.ResourceSetInputProvider{}
	for i, from := range obj.Spec.InputsFrom {
		if from.Selector == nil {
			p := &controlplanev1.ResourceSetInputProvider{}
			err := reader.Get(ctx, types.NamespacedName{Namespace: obj.Namespace, Name: from.Name}, p)
			if apierrors.IsNotFound(err) {
				return nil, fault.New(meta.BuildFailedReason, "ResourceSetInputProvider '%s/%s' not found",
					obj.Namespace, from.Name).WithHint("Create it, or remove it from spec.inputsFrom").Final()
			}
			if err != nil {
				return nil, err
			}
			found[p.Name] = p
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(from.Selector)
		if err != nil {
			return nil, fault.New(meta.BuildFailedReason, "spec.inputsFrom[%d].selector is invalid", i).Because(err).
				Final()
		}
		list := &controlplanev1.ResourceSetInputProviderList{}
		if err := reader.List(ctx, list, client.InNamespace(obj.Namespace),
			client.MatchingLabelsSelector{Selector: selector}); err != nil {
			return nil, fmt.Errorf("cannot list ResourceSetInputProviders: %w", err)
		}
		for i := range list.Items {
			found[list.Items[i].Name] = &list.Items[i]
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *controlplanev1.ResourceSetInputProvider) int {
		return cmp.Compare(a.Name, b.Name)
	}), nil
}
