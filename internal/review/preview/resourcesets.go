package preview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/adler32"
	"maps"
	"slices"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	inputsv1 "github.com/sluice-gitops/sluice/api/inputs/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/offline/localset"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/resourceset"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

func isResourceSet(o *unstructured.Unstructured) bool {
	return isKind(o, controlplanev1.GroupVersion.Group, controlplanev1.ResourceSetKind)
}

// newInputProvider returns an empty provider of inputs of a kind; nil for other kinds.
func newInputProvider(group, kind string) reconcile.Object {
	switch (schema.GroupKind{Group: group, Kind: kind}) {
	case schema.GroupKind{Group: controlplanev1.GroupVersion.Group, Kind: controlplanev1.ResourceSetInputProviderKind}:
		return &controlplanev1.ResourceSetInputProvider{}
	case schema.GroupKind{Group: inputsv1.GroupVersion.Group, Kind: inputsv1.ClusterInputProviderKind}:
		return &inputsv1.ClusterInputProvider{}
	}
	return nil
}

// readSets adds the ResourceSets of the cluster to the graph, if it knows the kind.
func (r *run) readSets(ctx context.Context, g *graph) error {
	g.sets = map[types.NamespacedName]*node[*controlplanev1.ResourceSet]{}
	if _, err := r.Cluster.Client.RESTMapper().RESTMapping(resourceset.GroupKind); apimeta.IsNoMatchError(err) {
		return nil
	}
	var list controlplanev1.ResourceSetList
	err := r.list(ctx, "ResourceSets", &list)
	if apierrors.IsForbidden(err) {
		r.note("you may not list ResourceSets: what the change does to them is hidden")
		return nil
	}
	if err != nil {
		return err
	}
	for n := range list.Items {
		o := &list.Items[n]
		g.sets[client.ObjectKeyFromObject(o)] = &node[*controlplanev1.ResourceSet]{live: o, declared: o, exists: true}
	}
	return nil
}

// resourceSets previews the ResourceSets that the change reaches. It reports whether there were any.
func (r *run) resourceSets(ctx context.Context, g *graph) bool {
	did := false
	for _, key := range slices.SortedFunc(maps.Keys(g.sets), func(a, b types.NamespacedName) int {
		return cmp.Compare(a.String(), b.String())
	}) {
		n := g.sets[key]
		if n.done || n.exists && !n.differs && !n.deleted && !r.changesInputs(n.declared) {
			continue
		}
		n.done, did = true, true
		owner := newOwner(controlplanev1.ResourceSetKind, key)
		owner.inventory = len(rollout.Inventory(n.live.Status.Inventory))
		for _, d := range n.declared.Spec.DependsOn {
			owner.dependsOn = append(owner.dependsOn, newOwner(d.Kind, types.NamespacedName{
				Namespace: cmp.Or(d.Namespace, key.Namespace), Name: d.Name}).Owner)
		}
		planned, err := r.planSet(ctx, n, owner)
		if !n.deleted && !n.declared.Schedule().Suspended {
			owner.object = n.declared // gates know no commit of a ResourceSet
		}
		owner.add(planned)
		switch {
		case errors.Is(err, localset.ErrNoInputs):
			owner.Note = noteOf(err)
		case err != nil:
			owner.Error = redact.Text(err.Error())
		}
		r.addOwner(owner)
		r.declare(ctx, g, planned, owner.restore)
	}
	return did
}

// noteOf says why the objects of a ResourceSet are not known.
func noteOf(err error) string {
	why := err
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		why = all.Unwrap()[1]
	}
	return redact.Text(localset.ErrNoInputs.Error() + ": " + why.Error())
}

// planSet returns what a ResourceSet would do.
func (r *run) planSet(ctx context.Context, n *node[*controlplanev1.ResourceSet], owner *Owner) ([]apply.Change, error) {
	target, err := r.Cluster.setTarget()
	if err != nil {
		return nil, err
	}
	obj := n.declared.DeepCopy()
	switch {
	case n.deleted && n.live.Schedule().Suspended:
		owner.Note = "deleted: its objects stay in the cluster, as it is suspended"
		return nil, nil
	case n.deleted:
		return target.Diff(ctx, apply.Request{Owner: localset.OwnerOf(n.live), Inspect: true,
			Previous: rollout.Inventory(n.live.Status.Inventory)})
	case obj.Schedule().Suspended:
		owner.Note = "suspended: nothing is applied until it is resumed"
		return nil, nil
	}
	obj.Status = n.live.Status
	objects, err := localset.Render(ctx, r.renderer, withInputs{r.Cluster.Client, r.inputs}, obj)
	if err != nil {
		return nil, err
	}
	req, err := localset.Request(ctx, target, obj, objects)
	if err != nil {
		return nil, err
	}
	req.Inspect = true
	return target.Diff(ctx, req)
}

// changesInputs reports whether the change changes a provider whose inputs a ResourceSet uses.
func (r *run) changesInputs(obj *controlplanev1.ResourceSet) bool {
	return slices.ContainsFunc(obj.Spec.InputsFrom, func(from controlplanev1.InputProviderReference) bool {
		for key, p := range r.inputs {
			kind := cmp.Or(from.Kind, controlplanev1.ResourceSetInputProviderKind)
			if key.Namespace != obj.Namespace || key.Kind != kind {
				continue
			}
			if from.Selector == nil && key.Name == from.Name {
				return true
			}
			selector, err := metav1.LabelSelectorAsSelector(from.Selector)
			if err == nil && (selector.Matches(labels.Set(p.labels)) || p.object != nil &&
				selector.Matches(labels.Set(p.object.GetLabels()))) {
				return true
			}
		}
		return false
	})
}

// changedInputs is a provider of inputs that the change creates, changes or deletes.
type changedInputs struct {
	object reconcile.Object  // nil if it is deleted
	labels map[string]string // before the change
}

// declareInputs records the change of a provider of inputs, and lets the ResourceSets of its namespace be previewed
// again. Live is nil without a cluster.
func (r *run) declareInputs(ctx context.Context, g *graph, declared reconcile.Object, c apply.Change) {
	var live reconcile.Object
	if r.Cluster != nil && c.Before != nil {
		live = newInputProvider(c.Ref.Group, c.Ref.Kind)
		if err := r.Cluster.Client.Get(ctx, types.NamespacedName{Namespace: c.Ref.Namespace, Name: c.Ref.Name},
			live); err != nil {
			live = nil
		}
	}
	now := changedInputs{}
	if live != nil {
		now.labels = live.GetLabels()
	}
	if c.Action != apply.Deleted {
		if declared.GetNamespace() == "" {
			declared.SetNamespace(c.Ref.Namespace)
		}
		r.exportInputs(declared, live)
		now.object = declared
	}
	ref := keyOf(c.Ref)
	before, isKnown := r.inputs[ref]
	if isKnown && meta.Equal(before.object, now.object) && maps.Equal(before.labels, now.labels) {
		return
	}
	r.inputs[ref] = now
	for key, n := range g.sets {
		if key.Namespace == ref.Namespace {
			n.done = false
		}
	}
}

// exportInputs gives a declared provider the inputs that it will export, as far as they are known before it is applied:
// those of a static one are in its spec, and others export what they do now.
func (r *run) exportInputs(declared, live reconcile.Object) {
	name := fmt.Sprintf("'%s/%s'", declared.GetNamespace(), declared.GetName())
	switch p := declared.(type) {
	case *controlplanev1.ResourceSetInputProvider:
		p.Status = controlplanev1.ResourceSetInputProviderStatus{}
		if l, ok := live.(*controlplanev1.ResourceSetInputProvider); ok && l != nil {
			p.Status = l.Status
		}
		if p.Spec.Type == controlplanev1.InputStatic {
			p.Status.ExportedInputs = []controlplanev1.InputSet{staticInputs(p, live)}
			return
		}
		if live != nil {
			r.note("ResourceSetInputProvider %s changes: the inputs that it exports now are used", name)
		}
	case *inputsv1.ClusterInputProvider:
		p.Status = inputsv1.ClusterInputProviderStatus{}
		if l, ok := live.(*inputsv1.ClusterInputProvider); ok && l != nil {
			p.Status = l.Status
			r.note("ClusterInputProvider %s changes: the inputs that it exports now are used", name)
		}
	}
}

// staticInputs returns the input set of a static provider. The ID of a new one is known once it is created.
func staticInputs(p *controlplanev1.ResourceSetInputProvider, live reconcile.Object) controlplanev1.InputSet {
	uid := types.UID("")
	if live != nil {
		uid = live.GetUID()
	}
	set := maps.Clone(p.Spec.DefaultValues)
	if set == nil {
		set = controlplanev1.InputSet{}
	}
	id := strconv.FormatUint(uint64(adler32.Checksum([]byte(uid))), 10)
	set["id"] = apiextensionsv1.JSON{Raw: []byte(strconv.Quote(id))}
	return set
}

// withInputs reads a cluster as it is with the changed providers of inputs.
type withInputs struct {
	client.Reader
	changed map[apply.Ref]changedInputs
}

// Get implements [client.Reader].
func (w withInputs) Get(ctx context.Context, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
	for ref, p := range w.changed {
		if ref.Namespace != key.Namespace || ref.Name != key.Name {
			continue
		}
		if own := newInputProvider(ref.Group, ref.Kind); fmt.Sprintf("%T", own) != fmt.Sprintf("%T", into) {
			continue
		}
		if p.object == nil {
			return apierrors.NewNotFound(schema.GroupResource{Group: ref.Group, Resource: ref.Kind}, key.Name)
		}
		return copyInto(into, p.object)
	}
	return w.Reader.Get(ctx, key, into, o...)
}

func copyInto(into client.Object, from reconcile.Object) error {
	switch into := into.(type) {
	case *controlplanev1.ResourceSetInputProvider:
		from.(*controlplanev1.ResourceSetInputProvider).DeepCopyInto(into)
	case *inputsv1.ClusterInputProvider:
		from.(*inputsv1.ClusterInputProvider).DeepCopyInto(into)
	}
	return nil
}

// List implements [client.Reader].
func (w withInputs) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := w.Reader.List(ctx, list, options...); err != nil {
		return err
	}
	o := (&client.ListOptions{}).ApplyOptions(options)
	items, err := apimeta.ExtractList(list)
	if err != nil {
		return err
	}
	for ref, p := range w.changed {
		if ref.Namespace != o.Namespace || fmt.Sprintf("%TList", newInputProvider(ref.Group, ref.Kind)) !=
			fmt.Sprintf("%T", list) {
			continue
		}
		items = slices.DeleteFunc(items, func(i runtime.Object) bool { return i.(client.Object).GetName() == ref.Name })
		if p.object != nil && (o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(p.object.GetLabels()))) {
			items = append(items, p.object.DeepCopyObject())
		}
	}
	return apimeta.SetList(list, items)
}
