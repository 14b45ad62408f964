package preview

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/kustomization/spec"
	"github.com/sluice-gitops/sluice/internal/model/lineage"
	"github.com/sluice-gitops/sluice/internal/offline/localbuild"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// graph is the Kustomizations, HelmReleases and ResourceSets of the cluster, as they will be once the change has
// landed.
type graph struct {
	kustomizations map[types.NamespacedName]*node[*kustomizev1.Kustomization]
	releases       map[types.NamespacedName]*node[*helmv2.HelmRelease]
	sets           map[types.NamespacedName]*node[*controlplanev1.ResourceSet]
	queue          []types.NamespacedName // of Kustomizations: those that create others come first
}

// node is an object of the graph.
type node[T client.Object] struct {
	live     T    // in the cluster; without a status if it does not exist
	exists   bool // in the cluster
	declared T    // with the change
	differs  bool // the change declares another spec
	deleted  bool // the change removes it
	kept     bool // the change declares it
	done     bool
}

// live compares the change with the cluster.
func (r *run) live(ctx context.Context) error {
	if err := r.findSources(ctx); err != nil {
		return err
	}
	options := localbuild.Options{Strict: r.Strict, Keys: r.keys(r.Cluster.Client),
		Placeholders: r.placeholders}
	r.before = localbuild.New(options, r.Cluster.Client, nil)
	r.after = localbuild.New(options, r.Cluster.Client, nil)
	g, err := r.readGraph(ctx)
	if err != nil {
		return err
	}
	for pass := true; pass; { // again if the change of a ConfigMap or of inputs reaches more
		pass = false
		for n := 0; n < len(g.queue); n++ {
			did, err := r.kustomization(ctx, g, g.kustomizations[g.queue[n]])
			if err != nil {
				return err
			}
			pass = pass || did
		}
		pass = r.resourceSets(ctx, g) || pass
	}
	return r.helmReleases(ctx, g)
}

// readGraph reads the Kustomizations and HelmReleases of the cluster. Those that others created come after them.
func (r *run) readGraph(ctx context.Context) (*graph, error) {
	g := &graph{kustomizations: map[types.NamespacedName]*node[*kustomizev1.Kustomization]{},
		releases: map[types.NamespacedName]*node[*helmv2.HelmRelease]{}}
	var ks kustomizev1.KustomizationList
	if err := r.list(ctx, "Kustomizations", &ks); err != nil {
		return nil, err
	}
	var hrs helmv2.HelmReleaseList
	if err := r.list(ctx, "HelmReleases", &hrs); err != nil {
		return nil, err
	}
	for n := range ks.Items {
		o := &ks.Items[n]
		g.kustomizations[client.ObjectKeyFromObject(o)] = &node[*kustomizev1.Kustomization]{live: o, declared: o,
			exists: true}
	}
	for n := range hrs.Items {
		o := &hrs.Items[n]
		g.releases[client.ObjectKeyFromObject(o)] = &node[*helmv2.HelmRelease]{live: o, declared: o, exists: true}
	}
	if err := r.readSets(ctx, g); err != nil {
		return nil, err
	}
	depth := map[types.NamespacedName]int{}
	for key := range g.kustomizations {
		g.queue = append(g.queue, key)
		depth[key] = g.depth(key, 0)
	}
	slices.SortFunc(g.queue, func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(depth[a], depth[b]), cmp.Compare(a.String(), b.String()))
	})
	return g, nil
}

const maxOwners = 20 // Kustomizations that create each other

// depth returns the number of Kustomizations above a Kustomization.
func (g *graph) depth(key types.NamespacedName, n int) int {
	k := g.kustomizations[key]
	if k == nil || n > maxOwners {
		return n
	}
	labels := k.live.GetLabels()
	group := kustomizev1.GroupVersion.Group
	above := types.NamespacedName{Namespace: labels[group+"/namespace"], Name: labels[group+"/name"]}
	if above.Name == "" || above == key {
		return n
	}
	return g.depth(above, n+1)
}

// kustomization previews a Kustomization if the change reaches it. It reports whether it did.
func (r *run) kustomization(ctx context.Context, g *graph, n *node[*kustomizev1.Kustomization]) (bool, error) {
	obj := n.declared
	key := client.ObjectKeyFromObject(obj)
	if n.done {
		return false, nil
	}
	touched := n.differs || !n.exists || n.deleted || r.usesConfig(key.Namespace, variablesOf(obj)...) ||
		r.declared[localbuild.SourceKey(obj)] != nil && r.sources[localbuild.SourceKey(obj)] == nil
	byFiles := false
	if !touched {
		var err error
		if byFiles, err = r.mayChange(ctx, obj); err != nil || !byFiles {
			return false, err
		}
	}
	n.done = true
	owner := newOwner(kustomizev1.KustomizationKind, key)
	owner.source, owner.Cluster = localbuild.SourceKey(obj), clusterOf(key.Namespace, obj.Spec.KubeConfig)
	owner.inventory = len(rollout.Inventory(n.live.Status.Inventory))
	for _, d := range lineage.Dependencies(obj) {
		owner.dependsOn = append(owner.dependsOn, risk.Owner{Kind: d.Kind, Namespace: d.Namespace, Name: d.Name})
	}
	planned, skipped, err := r.planKustomization(ctx, n, owner, byFiles)
	if skipped {
		return true, nil
	}
	if !n.deleted && !obj.Spec.Suspend {
		owner.object, owner.commit = obj, r.commitOf(ctx, owner.source)
	}
	owner.add(planned)
	if err != nil {
		owner.Error = redact.Text(err.Error(), owner.secrets...)
		owner.Before = r.failsBefore(ctx, n)
	}
	r.addOwner(owner)
	r.declare(ctx, g, planned, owner.restore)
	return true, nil
}

// addOwner adds an owner to the result, in place of an earlier preview of it.
func (r *run) addOwner(owner *Owner) {
	r.result.Owners = slices.DeleteFunc(r.result.Owners, func(o *Owner) bool { return o.Owner == owner.Owner })
	r.result.Owners = append(r.result.Owners, owner)
}

// failsBefore reports whether the build of a Kustomization fails without the change, too.
func (r *run) failsBefore(ctx context.Context, n *node[*kustomizev1.Kustomization]) bool {
	if !n.exists || r.sources[localbuild.SourceKey(n.live)] == nil {
		return false
	}
	_, err := r.build(ctx, r.From, n.live)
	return err != nil
}

// planKustomization returns what a Kustomization would do. It reports skipped if it reads none of the changed files.
func (r *run) planKustomization(ctx context.Context, n *node[*kustomizev1.Kustomization], owner *Owner,
	byFiles bool) (planned []apply.Change, skipped bool, err error) {
	obj := n.declared
	switch {
	case obj.Spec.KubeConfig != nil:
		owner.Note = "applies to another cluster, which is not compared"
		return nil, false, nil
	case n.deleted:
		planned, err = r.deletion(ctx, n, owner)
		return planned, false, err
	case obj.Spec.Suspend:
		owner.Note = "suspended: nothing is applied until it is resumed"
		return nil, false, nil
	}
	tree, err := r.treeFor(ctx, r.To, obj)
	if err != nil && r.sources[owner.source] == nil {
		owner.Note = fmt.Sprintf("its source is not this repository, and its objects are not compared: %v", err)
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if byFiles {
		before, err := r.build(ctx, r.From, n.live)
		if err == nil && before.Trace.Unchanged(tree) && !before.Again {
			return nil, true, nil
		}
	}
	built, err := r.build(ctx, r.To, obj)
	if err != nil {
		return nil, false, err
	}
	owner.veil, owner.restore = built.Veil, built.Restore
	checked := obj.DeepCopy()
	checked.Status = n.live.Status
	if err := spec.CheckNotEmpty(checked, built.Result, ""); err != nil {
		owner.Note = "its build has no objects: the controller deletes nothing until the annotation " +
			kustomizev1.AllowEmptyAnnotation + " names the revision"
	}
	req, err := built.ApplyRequest(ctx, r.Cluster.Target, n.live, r.builtBefore(ctx, n, built))
	if err != nil {
		return nil, false, err
	}
	owner.secrets = built.LiveSecrets()
	req.Inspect = true
	planned, err = r.Cluster.Target.Diff(ctx, req)
	r.after.AddConfigs(built)
	return planned, false, err
}

// builtBefore returns what a Kustomization builds without the change, to compare what comes from secrets; nil if that
// is not known, or if nothing does.
func (r *run) builtBefore(ctx context.Context, n *node[*kustomizev1.Kustomization],
	built *localbuild.Result) *localbuild.Result {
	if !n.exists || built.Veil.IsOpen() && !r.placeholders.Used() || r.sources[localbuild.SourceKey(n.live)] == nil {
		return nil
	}
	before, err := r.build(ctx, r.From, n.live)
	if err != nil {
		return nil // it is repaired by the change
	}
	return before
}

// deletion returns what the deletion of a Kustomization deletes.
func (r *run) deletion(ctx context.Context, n *node[*kustomizev1.Kustomization], owner *Owner) ([]apply.Change, error) {
	if n.live.Spec.Suspend || !spec.DeletesObjects(n.live) {
		owner.Note = "deleted: its objects stay in the cluster"
		return nil, nil
	}
	return r.Cluster.Target.Diff(ctx, apply.Request{Owner: localbuild.OwnerOf(n.live), Inspect: true,
		Previous: rollout.Inventory(n.live.Status.Inventory)})
}

// declare adds the Kustomizations, HelmReleases and ResourceSets among planned changes to the graph, and records which
// ConfigMaps, Secrets and providers of inputs change.
func (r *run) declare(ctx context.Context, g *graph, planned []apply.Change,
	restore func(*unstructured.Unstructured) *unstructured.Unstructured) {
	for _, c := range planned {
		key := types.NamespacedName{Namespace: c.Ref.Namespace, Name: c.Ref.Name}
		if c.Action != apply.Created && c.Action != apply.Configured && c.Action != apply.Deleted {
			continue
		}
		switch {
		case c.Ref.Group == "" && (c.Ref.Kind == "ConfigMap" || c.Ref.Kind == "Secret"):
			r.configs[c.Ref.Kind+"/"+key.String()] = true
		case c.Ref.Group == kustomizev1.GroupVersion.Group && c.Ref.Kind == kustomizev1.KustomizationKind:
			if declareNode(g.kustomizations, key, c, restore) {
				g.queue = append(g.queue, key)
			}
		case c.Ref.Group == helmv2.GroupVersion.Group && c.Ref.Kind == helmv2.HelmReleaseKind:
			declareNode(g.releases, key, c, restore)
		case c.Ref.Group == controlplanev1.GroupVersion.Group && c.Ref.Kind == controlplanev1.ResourceSetKind:
			declareNode(g.sets, key, c, restore)
		case newInputProvider(c.Ref.Group, c.Ref.Kind) != nil:
			declared := newInputProvider(c.Ref.Group, c.Ref.Kind)
			if c.Action == apply.Deleted || manifest.Convert(restore(c.After), declared) == nil {
				r.declareInputs(ctx, g, declared, c)
			}
		case c.Ref.Group == sourcev1.GroupVersion.Group && slices.Contains(sourceKinds, c.Ref.Kind) &&
			c.Action != apply.Deleted:
			if !meta.Equal(specOf(c.Before), specOf(c.After)) && r.declareSource(c.Ref.Kind, key, c.After) {
				g.buildAgain(c.Ref.Kind + "/" + key.String())
			}
		}
	}
}

// buildAgain lets the Kustomizations of a source be previewed again.
func (g *graph) buildAgain(source string) {
	for _, n := range g.kustomizations {
		if n.declared != nil && localbuild.SourceKey(n.declared) == source {
			n.done = false
		}
	}
}

// declareNode records the change of a node. It reports whether the node is new.
func declareNode[T any, P interface {
	*T
	client.Object
}](nodes map[types.NamespacedName]*node[P], key types.NamespacedName, c apply.Change,
	restore func(*unstructured.Unstructured) *unstructured.Unstructured) bool {
	n := nodes[key]
	isNew := n == nil
	if isNew {
		if c.Action == apply.Deleted {
			return false
		}
		n = &node[P]{live: P(new(T))}
		nodes[key] = n
	}
	if c.Action == apply.Deleted {
		n.deleted = !n.kept // another owner may declare it
		return false
	}
	n.kept = true
	if n.deleted {
		n.deleted, n.done = false, false
	}
	declared := P(new(T))
	if err := manifest.Convert(restore(c.After), declared); err != nil {
		return isNew // the dry-run reports what does not decode
	}
	if declared.GetNamespace() == "" {
		declared.SetNamespace(key.Namespace)
	}
	if n.done && !isNew && !meta.Equal(specIn(n.declared), specIn(declared)) {
		n.done = false // a ResourceSet declares it, which came after it
	}
	n.declared = declared
	n.differs = n.differs || isNew || !meta.Equal(specOf(c.Before), specOf(c.After))
	return isNew
}

// specIn returns the spec of an object of any type.
func specIn(o client.Object) any {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil
	}
	return fields["spec"]
}

func specOf(o *unstructured.Unstructured) any {
	if o == nil {
		return nil
	}
	return o.Object["spec"]
}
