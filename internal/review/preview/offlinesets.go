package preview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/offline/localset"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// renderedSet is what one ResourceSet renders on one side.
type renderedSet struct {
	obj     *controlplanev1.ResourceSet
	objects []*unstructured.Unstructured
	err     error
}

// renderSets renders the ResourceSets among rendered objects, and those among their objects. Their inputs are inline,
// or those of static providers on the same side.
func (r *run) renderSets(ctx context.Context,
	all map[types.NamespacedName]*rendered) map[types.NamespacedName]*renderedSet {
	out := map[types.NamespacedName]*renderedSet{}
	inputs := map[apply.Ref]changedInputs{}
	queue := objectsIn(all)
	var sets []*controlplanev1.ResourceSet
	collect := func(objects []*unstructured.Unstructured) {
		for _, o := range objects {
			p := newInputProvider(o.GroupVersionKind().Group, o.GetKind())
			if p != nil && manifest.Convert(o, p) == nil {
				p.SetNamespace(cmp.Or(p.GetNamespace(), "default"))
				r.exportInputs(p, nil)
				ref := keyOf(refOf(o))
				ref.Namespace = p.GetNamespace()
				inputs[ref] = changedInputs{object: p}
			}
			set := &controlplanev1.ResourceSet{}
			if isResourceSet(o) && manifest.Convert(o, set) == nil {
				set.Namespace = cmp.Or(set.Namespace, "default")
				sets = append(sets, set)
			}
		}
	}
	collect(queue)
	for n := 0; n < len(sets); n++ {
		key := client.ObjectKeyFromObject(sets[n])
		if out[key] != nil {
			continue
		}
		x := &renderedSet{obj: sets[n]}
		if out[key] = x; x.obj.Schedule().Suspended {
			continue
		}
		x.objects, x.err = localset.Render(ctx, r.renderer, withInputs{noProviders{}, inputs}, x.obj)
		collect(x.objects)
	}
	return out
}

// noProviders stands for a cluster without providers of inputs.
type noProviders struct{ client.Reader }

// Get implements [client.Reader].
func (noProviders) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return errors.Join(localset.ErrNoInputs, fmt.Errorf("provider '%s' is not in the repository", key))
}

// List implements [client.Reader].
func (noProviders) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// compareSets adds the differences of ResourceSets before and after the change.
func (r *run) compareSets(before, after map[types.NamespacedName]*renderedSet) {
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	for _, key := range slices.SortedFunc(maps.Keys(keys), func(a, b types.NamespacedName) int {
		return cmp.Compare(a.String(), b.String())
	}) {
		owner := newOwner(controlplanev1.ResourceSetKind, key)
		old, now := before[key], after[key]
		switch {
		case isUnknown(old) || isUnknown(now):
			if old == nil || now == nil || !meta.Equal(old.obj.Spec, now.obj.Spec) {
				owner.Note = "its objects are not compared, as --offline reads no inputs from the cluster"
			}
		case now != nil && now.err != nil:
			owner.Error, owner.Before = redact.Text(now.err.Error()), old != nil && old.err != nil
		case now != nil && now.obj.Schedule().Suspended:
			owner.Note = "suspended: nothing is applied until it is resumed"
		case old != nil && old.obj.Schedule().Suspended && now == nil:
			owner.Note = "deleted: its objects stay in the cluster, as it is suspended"
		default:
			if old != nil && old.err != nil {
				owner.Note = "it could not be rendered before the change, so all its objects are shown as created"
			}
			was := byRef(old)
			owner.inventory = len(was)
			owner.add(compareObjects(was, byRef(now), nil, false))
		}
		r.addOwner(owner)
	}
}

// isUnknown reports whether the inputs of a ResourceSet are known in the cluster only.
func isUnknown(x *renderedSet) bool { return x != nil && errors.Is(x.err, localset.ErrNoInputs) }

func byRef(x *renderedSet) map[apply.Ref]*unstructured.Unstructured {
	out := map[apply.Ref]*unstructured.Unstructured{}
	if x != nil {
		for _, o := range x.objects {
			out[keyOf(refOf(o))] = o
		}
	}
	return out
}

func objectsOfSets(all map[types.NamespacedName]*renderedSet) (out []*unstructured.Unstructured) {
	for _, x := range all {
		out = append(out, x.objects...)
	}
	return out
}
