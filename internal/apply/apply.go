package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Action is what became of an object.
type Action string

// Actions.
const (
	Created    Action = "created"
	Configured Action = "configured"
	Unchanged  Action = "unchanged"
	Deleted    Action = "deleted"
	Skipped    Action = "skipped"
)

// Change is what became of one object.
type Change struct {
	Ref    Ref
	Action Action
}

// Request says what the cluster is to hold.
type Request struct {
	Owner    Owner
	Objects  []*unstructured.Unstructured
	Previous Inventory // what the owner applied before
	Force    bool      // re-create objects when an immutable field changes
	Resync   bool      // compare everything, also what did not move

	// Intend is called with Previous and all desired objects before the first that Previous does not name is created, so
	// that a process killed at any instruction leaves no object that nobody knows of. May be nil.
	Intend func(Inventory) error
}

// Result is what became of the request.
type Result struct {
	Changes   []Change
	Inventory Inventory // of all desired objects
}

// Apply makes the cluster hold the objects. Everything that can be is dry-run before anything is written: a refused
// object leaves the cluster as it was, and all refusals are told at once. Objects that stand as declared cost no request.
// The result is not nil even with an error; it lists what was done until then.
func (c *Cluster) Apply(ctx context.Context, req Request) (*Result, error) {
	result := &Result{}
	items, err := c.plan(req)
	if err != nil {
		return result, err
	}
	for _, i := range items {
		result.Inventory = append(result.Inventory, i.ref.Entry())
	}
	run := &applyRun{Cluster: c, req: req, result: result, items: items}
	if err := run.check(ctx); err != nil {
		return result, err
	}
	if len(result.Inventory.Without(req.Previous)) > 0 && req.Intend != nil {
		if err := req.Intend(req.Previous.With(result.Inventory)); err != nil {
			return result, err
		}
	}
	if err := run.write(ctx); err != nil {
		return result, err
	}
	c.retain(req.Owner, result.Inventory)
	return result, nil
}

// plan finds out what each object is to the cluster. Kinds that a definition among the objects brings are known from it.
func (c *Cluster) plan(req Request) ([]*item, error) {
	brought := definitions(req.Objects)
	var items []*item
	var problems []error
	reset := false
	for _, o := range req.Objects {
		gvk := o.GroupVersionKind()
		mapping, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if newer := upgrade(o); apimeta.IsNoMatchError(err) && newer != nil {
			o, gvk = newer, newer.GroupVersionKind()
			mapping, err = c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		}
		if apimeta.IsNoMatchError(err) && brought[gvk] == nil && !reset {
			reset = true // once: the kind may be newer than what was discovered
			c.mapper.Reset()
			mapping, err = c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		}
		defined := err == nil
		if err != nil && brought[gvk] != nil {
			mapping, err = brought[gvk], nil
		}
		if apimeta.IsNoMatchError(err) {
			problems = append(problems, problem("%s: the cluster has no kind %s in %s", show(o), gvk.Kind, gvk.GroupVersion()).
				WithHint("Install its definition first: add it, or a dependsOn to what brings it"))
			continue
		}
		if err != nil {
			return nil, problem("cannot find out what kinds the cluster serves").Because(err)
		}
		i, err := newItem(o, req.Owner, mapping)
		if err != nil {
			problems = append(problems, problem("%s cannot be read", show(o)).Because(err))
			continue
		}
		i.defined = defined
		items = append(items, i)
	}
	return items, join(problems)
}

// definitions returns the kinds that CustomResourceDefinitions among the objects define.
func definitions(objects []*unstructured.Unstructured) map[schema.GroupVersionKind]*apimeta.RESTMapping {
	found := map[schema.GroupVersionKind]*apimeta.RESTMapping{}
	for _, o := range objects {
		if o.GetKind() != crdKind {
			continue
		}
		get := func(path ...string) string {
			s, _, err := unstructured.NestedString(o.Object, path...)
			if err != nil {
				return "" // the API server says what is wrong with it
			}
			return s
		}
		scope := apimeta.RESTScopeRoot
		if get("spec", "scope") == "Namespaced" {
			scope = apimeta.RESTScopeNamespace
		}
		versions, _, err := unstructured.NestedSlice(o.Object, "spec", "versions")
		if err != nil {
			continue
		}
		for _, v := range versions {
			version, ok := v.(map[string]any)
			if !ok {
				continue
			}
			gvk := schema.GroupVersionKind{Group: get("spec", "group"), Version: fmt.Sprint(version["name"]), Kind: get("spec", "names", "kind")}
			found[gvk] = &apimeta.RESTMapping{
				Resource: gvk.GroupVersion().WithResource(get("spec", "names", "plural")), GroupVersionKind: gvk, Scope: scope,
			}
		}
	}
	return found
}

// applyRun is one request under way.
type applyRun struct {
	*Cluster
	req    Request
	items  []*item
	mu     sync.Mutex
	result *Result
}

// check dry-runs every object that may differ, and collects all refusals.
func (r *applyRun) check(ctx context.Context) error {
	namespaces := map[string]bool{}
	for _, i := range r.items {
		if i.ref.Kind == "Namespace" && i.ref.Group == "" {
			namespaces[i.ref.Name] = true
		}
	}
	return r.each(ctx, r.items, func(ctx context.Context, i *item) error {
		if !r.req.Resync && i.defined && r.settled(r.req.Owner, i) {
			i.action, i.checked = Unchanged, true
			return nil
		}
		if !i.defined {
			return nil // checked once its definition is established
		}
		err := r.dryRun(ctx, i)
		if err != nil && namespaces[i.ref.Namespace] && namespaceMissing(err, i.ref.Namespace) {
			return r.validate(ctx, i) // checked in full once its namespace is there
		}
		return err
	})
}

// dryRun asks the server what applying the object would come to, and compares that with what stands there.
func (r *applyRun) dryRun(ctx context.Context, i *item) error {
	owner := r.req.Owner
	if annotated(i.desired, owner, reconcileAnnotation, "disabled") || annotated(i.desired, owner, ssaAnnotation, "Ignore") {
		i.action, i.checked = Skipped, true
		return nil
	}
	r.begin(owner, i)
	wouldBe, err := r.patch(ctx, i, true)
	immutable := err != nil && isImmutable(err)
	if immutable && (r.req.Force || annotated(i.desired, owner, forceAnnotation, "enabled")) {
		i.action, i.checked, i.recreate = Configured, true, true
		return nil
	}
	if err != nil {
		r.end(owner, i, nil)
		return r.explain(i, err)
	}
	i.checked = true
	if wouldBe.GetResourceVersion() == "" { // nothing was stored, and nothing is stored yet
		i.action = Created
		return nil
	}
	live, err := r.client(i.resource, i.ref.Namespace).Get(ctx, i.ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		i.action = Created
	case err != nil:
		r.end(owner, i, nil)
		return r.explain(i, err)
	case annotated(live, owner, reconcileAnnotation, "disabled") || annotated(i.desired, owner, ssaAnnotation, "IfNotPresent"):
		i.action = Skipped
		r.end(owner, i, live)
	case same(live, wouldBe, r.options.FieldManager):
		i.action = Unchanged
		r.end(owner, i, live)
	default:
		i.action = Configured
	}
	return nil
}

// validate checks an object whose namespace is not there yet: as if it were created in another, under a name of no one.
func (r *applyRun) validate(ctx context.Context, i *item) error {
	probe := i.desired.DeepCopy()
	probe.SetNamespace(metav1.NamespaceDefault)
	probe.SetName("")
	probe.SetGenerateName("sluice-check-")
	_, err := r.client(i.resource, metav1.NamespaceDefault).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return r.explain(i, err)
	}
	return nil // whatever else is said may be of the other namespace
}

// write applies what differs, stage after stage.
func (r *applyRun) write(ctx context.Context) error {
	for _, stage := range stages(r.items) {
		if err := r.each(ctx, stage, r.writeOne); err != nil {
			return err
		}
		if err := r.established(ctx, stage); err != nil {
			return err
		}
	}
	return nil
}

func (r *applyRun) writeOne(ctx context.Context, i *item) error {
	if !i.checked {
		if err := r.dryRun(ctx, i); err != nil {
			return err
		}
	}
	if i.action == Created || i.action == Configured {
		if i.recreate {
			if err := r.deleteAndWait(ctx, i); err != nil {
				return err
			}
		}
		live, err := r.patch(ctx, i, false)
		r.end(r.req.Owner, i, live)
		if err != nil {
			return r.explain(i, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Changes = append(r.result.Changes, Change{i.ref, i.action})
	return nil
}

// patch sends a server-side apply. It returns nil with an error.
func (r *applyRun) patch(ctx context.Context, i *item, dry bool) (*unstructured.Unstructured, error) {
	data, err := i.desired.MarshalJSON()
	if err != nil {
		return nil, err
	}
	force := true
	options := metav1.PatchOptions{FieldManager: r.options.FieldManager, Force: &force}
	if dry {
		options.DryRun = []string{metav1.DryRunAll}
	}
	live, err := r.client(i.resource, i.ref.Namespace).Patch(ctx, i.ref.Name, types.ApplyPatchType, data, options)
	if err != nil {
		return nil, err
	}
	return live, nil
}

// each calls do for the items, some at once, and returns all problems together.
func (r *applyRun) each(ctx context.Context, items []*item, do func(context.Context, *item) error) error {
	var g errgroup.Group
	g.SetLimit(r.options.Concurrency)
	problems := make([]error, len(items))
	for n, i := range items {
		g.Go(func() error {
			problems[n] = do(ctx, i)
			return nil
		})
	}
	_ = g.Wait() // the functions return nothing
	if ctx.Err() != nil {
		return problem("the time for applying ran out").Because(ctx.Err()).WithHint("Raise spec.timeout")
	}
	return join(problems)
}

// deleteAndWait makes room for an object that cannot be changed in place.
func (r *applyRun) deleteAndWait(ctx context.Context, i *item) error {
	resource := r.client(i.resource, i.ref.Namespace)
	w, err := resource.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + i.ref.Name})
	if err != nil {
		return r.explain(i, err)
	}
	defer w.Stop()
	policy := metav1.DeletePropagationBackground
	if err := resource.Delete(ctx, i.ref.Name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return r.explain(i, err)
	}
	for e := range w.ResultChan() {
		if e.Type == "DELETED" {
			return nil
		}
	}
	return errors.Join(ctx.Err(), problem("%s did not go within the time", i.ref).WithHint("Something holds it: look at its finalizers"))
}

// stages orders the items: what others need comes first.
func stages(items []*item) [][]*item {
	byRank := map[int][]*item{}
	var ranks []int
	for _, i := range items {
		n := rank(i.ref)
		if byRank[n] == nil {
			ranks = append(ranks, n)
		}
		byRank[n] = append(byRank[n], i)
	}
	slices.Sort(ranks)
	out := make([][]*item, len(ranks))
	for n, rank := range ranks {
		out[n] = byRank[rank]
	}
	return out
}

// order of kinds; what is not named stands in the middle.
var order = [][]string{
	{crdKind, "Namespace", "StorageClass", "PriorityClass", "IngressClass", "RuntimeClass", "GatewayClass", "ClusterClass", "VolumeSnapshotClass", "DeviceClass"},
	{"ResourceQuota", "LimitRange"},
	{"ServiceAccount", "ConfigMap", "Secret", "PersistentVolume", "PersistentVolumeClaim", "ClusterRole", "Role"},
	{"ClusterRoleBinding", "RoleBinding"},
	{"Service", "NetworkPolicy", "PodDisruptionBudget"},
}

const middle = 100

func rank(ref Ref) int {
	for n, kinds := range order {
		if slices.Contains(kinds, ref.Kind) {
			return n
		}
	}
	if strings.HasSuffix(ref.Kind, "WebhookConfiguration") || ref.Kind == "APIService" {
		return middle + 1
	}
	return middle
}
