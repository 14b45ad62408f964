package preview

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	inputsv1 "github.com/sluice-gitops/sluice/api/inputs/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/offline/localbuild"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/text/diff"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// noCluster stands for a cluster whose ConfigMaps and Secrets are empty.
type noCluster struct{ client.Reader }

// Get implements [client.Reader].
func (noCluster) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil // such as the source of a Kustomization: it has no settings
}

// rendered is what one Kustomization renders on one side.
type rendered struct {
	obj   *kustomizev1.Kustomization
	built *localbuild.Result // nil if the build was not needed
	err   error
}

// offline compares what the Kustomizations of the repository render before and after the change.
func (r *run) offline(ctx context.Context) error {
	r.note("rendered without a cluster: values from ConfigMaps and Secrets outside of the repository are empty, and " +
		"changes are not dry-run")
	options := localbuild.Options{Keys: r.keys(nil), Placeholders: r.placeholders}
	r.before = localbuild.New(options, noCluster{}, nil)
	r.after = localbuild.New(options, noCluster{}, nil)
	r.sources = map[string]*source{}
	declarations := map[string]bool{}
	roots := map[*Snapshot][]*kustomizev1.Kustomization{}
	read := 0
	for _, side := range []*Snapshot{r.From, r.To} {
		found, files, n, err := declared(side, r.Cache)
		if err != nil {
			return err
		}
		read += n
		if len(found) == 0 {
			found = r.Roots
		}
		roots[side] = found
		for _, f := range files {
			declarations[f] = true
		}
		for _, k := range found {
			r.addSource(k)
		}
	}
	if err := r.checkDeclared(slices.Concat(roots[r.From], roots[r.To]), read); err != nil {
		return err
	}
	files := newChangeSet(slices.Concat(r.result.Files, slices.Collect(maps.Keys(declarations))))
	before, old, err := r.renderSide(ctx, r.From, roots[r.From], files)
	if err != nil {
		return err
	}
	after, now, err := r.renderSide(ctx, r.To, roots[r.To], files)
	if err != nil {
		return err
	}
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	for key := range keys {
		r.complete(ctx, before[key], after[key])
		r.compareRendered(key, before[key], after[key])
	}
	r.compareSets(old, now)
	return r.offlineReleases(ctx, append(objectsIn(before), objectsOfSets(old)...),
		append(objectsIn(after), objectsOfSets(now)...))
}

// checkDeclared returns an error if no Kustomization of the repository applies its files: "no changes" would then be
// the answer to every change. Read is the number of files that were searched.
func (r *run) checkDeclared(found []*kustomizev1.Kustomization, read int) error {
	if len(found) == 0 {
		return fmt.Errorf("found no Kustomization (%s) in the YAML files of '%s' and '%s' (%d read), so nothing says "+
			"what is applied. HelmReleases and other objects are previewed if a Kustomization of the repository "+
			"applies them. Declare the one that applies this repository in it, or omit --offline to read it from "+
			"the cluster", kustomizev1.GroupVersion.Group, r.From.Name, r.To.Name, read)
	}
	if len(r.sources) > 0 {
		return nil
	}
	var keys []string
	for _, k := range found {
		keys = append(keys, localbuild.SourceKey(k))
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	return fmt.Errorf("found no Kustomization in '%s' and '%s' whose source is this repository. Sources of those that "+
		"are declared: %s. Name the sources that hold the repository with --source", r.From.Name, r.To.Name,
		excerpt.Bytes(strings.Join(keys, ", "), maxKeys))
}

// maxKeys bounds the sources that an error names, in bytes.
const maxKeys = 500

// addSource takes the source of a Kustomization as this repository, unless --source names others.
func (r *run) addSource(k *kustomizev1.Kustomization) {
	key := localbuild.SourceKey(k)
	if k.Spec.SourceRef.Kind == "GitRepository" && len(r.Sources) == 0 || slices.Contains(r.Sources, key) {
		r.sources[key] = &source{key: key}
	}
}

// complete builds the sides of a Kustomization that no changed file reaches: if the other side had to be built, or if
// its declaration changes.
func (r *run) complete(ctx context.Context, before, after *rendered) {
	isBuilt := func(x *rendered) bool { return x != nil && x.built != nil }
	if before != nil && after != nil && !isBuilt(before) && !isBuilt(after) &&
		meta.Equal(before.obj.Spec, after.obj.Spec) {
		return
	}
	fill := func(side *Snapshot, x *rendered) {
		if x != nil && x.built == nil && x.err == nil && !x.obj.Spec.Suspend &&
			r.sources[localbuild.SourceKey(x.obj)] != nil {
			x.built, x.err = r.build(ctx, side, x.obj)
		}
	}
	fill(r.From, before)
	fill(r.To, after)
}

const maxDeclaration = 1 << 20 // bytes of a file

// hasInputs reports whether a file may declare a ResourceSet or a provider of inputs: both must be known to render.
func hasInputs(content []byte) bool {
	return bytes.Contains(content, []byte(controlplanev1.GroupVersion.Group)) ||
		bytes.Contains(content, []byte(inputsv1.GroupVersion.Group))
}

// declared returns the Kustomizations that the files of a snapshot declare, all files that declare one or a set,
// and how many files it read. If some apply themselves, as bootstrap creates them, only those are returned: they create
// the others.
func declared(side *Snapshot, cache *Cache) (found []*kustomizev1.Kustomization, files []string, read int, err error) {
	tree, err := side.Tree(checkout{})
	if err != nil {
		return nil, nil, 0, err
	}
	var roots []*kustomizev1.Kustomization
	err = tree.Walk(func(name string, e *artifact.Entry) error {
		if e.Dir != nil || e.Mode&fs.ModeSymlink != 0 || !isYAML(name) {
			return nil
		}
		d, ok, err := declaredBy(tree, name, e.ID, cache)
		if err != nil || !ok {
			return err
		}
		if read++; d.counts {
			files = append(files, name)
		}
		for _, k := range d.kustomizations {
			k = k.DeepCopy()
			found = append(found, k)
			within := strings.TrimPrefix(path.Clean("/"+k.Spec.Path), "/")
			if within != "" && strings.HasPrefix(name, within+"/") {
				roots = append(roots, k)
			}
		}
		return nil
	})
	if len(roots) > 0 {
		found = roots
	}
	return found, files, read, err
}

// declaredBy returns what a file declares; false if the file is too large.
func declaredBy(tree *artifact.Tree, name, id string, cache *Cache) (d declaration, ok bool, err error) {
	if d, ok := cache.declaration(id); ok {
		return d, true, nil
	}
	info, err := tree.Stat(name)
	if err != nil || info.Size() > maxDeclaration {
		return d, false, nil
	}
	content, err := tree.ReadFile(name)
	if err != nil {
		return d, false, err
	}
	d = declarationOf(content)
	cache.addDeclaration(id, d, len(content))
	return d, true, nil
}

func declarationOf(content []byte) declaration {
	d := declaration{counts: hasInputs(content)}
	if !bytes.Contains(content, []byte(kustomizev1.GroupVersion.Group)) {
		return d
	}
	objects, err := manifest.Decode(content)
	if err != nil {
		return d // a build that reads it reports it
	}
	d.counts = true
	for _, o := range objects {
		k := &kustomizev1.Kustomization{}
		if isKustomization(o) && manifest.Convert(o, k) == nil {
			k.Namespace = cmp.Or(k.Namespace, "default")
			d.kustomizations = append(d.kustomizations, k)
		}
	}
	return d
}

// renderAll builds the Kustomizations of a side, and those among their objects, if the files may reach them.
func (r *run) renderAll(ctx context.Context, side *Snapshot, roots []*kustomizev1.Kustomization,
	files *changeSet) (map[types.NamespacedName]*rendered, error) {
	out := map[types.NamespacedName]*rendered{}
	queue := slices.Clone(roots)
	builder := r.after
	if side == r.From {
		builder = r.before
	}
	for n := 0; n < len(queue); n++ {
		obj := queue[n]
		key := client.ObjectKeyFromObject(obj)
		if out[key] != nil && n < len(roots) {
			r.note("Kustomization '%s' is declared more than once: only the first declaration is previewed", key)
		}
		if out[key] != nil {
			continue
		}
		out[key] = &rendered{obj: obj}
		r.addSource(obj)
		s := r.sources[localbuild.SourceKey(obj)]
		if s == nil || obj.Spec.Suspend {
			continue
		}
		reach, err := r.reachOf(ctx, side, s)
		if err != nil {
			return nil, err
		}
		if !reach.touches(obj.Spec.Path, obj.Spec.Components, files) {
			continue
		}
		out[key].built, out[key].err = r.build(ctx, side, obj)
		if out[key].err != nil {
			continue
		}
		builder.AddConfigs(out[key].built)
		for _, o := range out[key].built.Objects {
			nested := &kustomizev1.Kustomization{}
			if isKustomization(o) && manifest.Convert(o, nested) == nil {
				nested.Namespace = cmp.Or(nested.Namespace, "default")
				queue = append(queue, nested)
			}
		}
	}
	return out, nil
}

// compareRendered adds the difference of a Kustomization before and after the change.
func (r *run) compareRendered(key types.NamespacedName, before, after *rendered) {
	owner := newOwner(kustomizev1.KustomizationKind, key)
	old, now := objectsOf(before), objectsOf(after)
	owner.inventory = len(old)
	for _, side := range []*rendered{before, after} {
		if side == nil {
			continue
		}
		owner.source, owner.Cluster = localbuild.SourceKey(side.obj), clusterOf(key.Namespace, side.obj.Spec.KubeConfig)
		if side.obj.Spec.Suspend && side == after {
			owner.Note = "suspended: nothing is applied until it is resumed"
		}
	}
	switch {
	case after != nil && after.err != nil:
		owner.Error, owner.Before = redact.Text(after.err.Error()), before != nil && before.err != nil
		old, now = nil, nil
	case before != nil && before.err != nil:
		owner.Note = "it could not be built before the change, so all its objects are shown as created"
	case owner.Note != "" && (before == nil || before.obj.Spec.Suspend):
		return
	}
	owner.veil = veilOf(before, after)
	changes := compareObjects(old, now, owner.veil, after != nil && !after.obj.Spec.Prune)
	for n, c := range changes {
		if c.After != nil {
			for _, p := range apply.UnknownFields(c.After) {
				changes[n].Unknown = append(changes[n].Unknown, apply.UnknownField{Path: p})
			}
		}
	}
	owner.add(changes)
	r.addOwner(owner)
}

// veilOf returns what hides what comes from secrets before and after the change.
func veilOf(before, after *rendered) *redact.Veil {
	var was, is *localbuild.Result
	if before != nil {
		was = before.built
	}
	if after != nil {
		is = after.built
	}
	if was.Known() == nil && is.Known() == nil {
		return nil
	}
	return &redact.Veil{Before: knownOf(was), Render: func() (objects, placeholders []*unstructured.Unstructured,
		err error) {
		return is.Renders()
	}}
}

// knownOf returns what may be shown of a build.
func knownOf(r *localbuild.Result) *redact.Known {
	if known := r.Known(); known != nil || r == nil {
		return known
	}
	return redact.Compare(r.Objects, r.Objects) // nothing of it comes from secrets
}

func objectsOf(x *rendered) map[apply.Ref]*unstructured.Unstructured {
	out := map[apply.Ref]*unstructured.Unstructured{}
	if x != nil && x.built != nil {
		for _, o := range x.built.Objects {
			out[keyOf(refOf(o))] = o
		}
	}
	return out
}

func refOf(o *unstructured.Unstructured) apply.Ref {
	gvk := o.GroupVersionKind()
	return apply.Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: o.GetNamespace(),
		Name: o.GetName()}
}

// compareObjects returns the changes between two sets of rendered objects.
func compareObjects(old, now map[apply.Ref]*unstructured.Unstructured, veil *redact.Veil,
	keeps bool) []apply.Change {
	all := map[apply.Ref]*unstructured.Unstructured{}
	maps.Copy(all, old)
	maps.Copy(all, now)
	refs := slices.SortedFunc(maps.Keys(all), func(a, b apply.Ref) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Group, b.Group))
	})
	var out []apply.Change
	for _, ref := range refs {
		before, after := old[ref], now[ref]
		c := apply.Change{Ref: refOf(all[ref]), Before: before, After: after}
		switch {
		case before == nil:
			c.Action = apply.Created
		case after == nil && keeps:
			continue // without spec.prune, the object stays
		case after == nil:
			c.Action = apply.Deleted
		default:
			c.Action = apply.Unchanged
			if c.Diff = diff.Text(veil.Objects(before, after, false)); c.Diff != "" {
				c.Action = apply.Configured
			}
		}
		if c.Action == apply.Created {
			c.Diff = diff.Text(veil.Objects(nil, after, false))
		}
		out = append(out, c)
	}
	return out
}

// offlineReleases compares the HelmReleases among the rendered objects whose chart is in the repository.
func (r *run) offlineReleases(ctx context.Context, before, after []*unstructured.Unstructured) error {
	old, now := releasesOf(before), releasesOf(after)
	all := maps.Clone(old)
	maps.Copy(all, now)
	for key := range all {
		owner := newOwner(helmv2.HelmReleaseKind, key)
		sides := map[*Snapshot]map[apply.Ref]*unstructured.Unstructured{}
		unknown := false
		for side, obj := range map[*Snapshot]*helmv2.HelmRelease{r.From: old[key], r.To: now[key]} {
			if obj == nil || obj.Spec.Suspend {
				continue
			}
			c, err := r.chartOf(ctx, obj)
			if err != nil {
				return err
			}
			if c.source == nil {
				unknown = true
				continue
			}
			built, err := r.render(ctx, side, obj, nil, c)
			if err != nil {
				owner.Error = redact.Text(err.Error())
				continue
			}
			sides[side] = objectsOf(&rendered{built: asBuilt(built.Objects)})
		}
		if unknown && (old[key] == nil || now[key] == nil || !equalSpecs(old[key], now[key])) {
			owner.Note = "its chart is not in the repository, and --offline fetches none: its objects are not compared"
		}
		if owner.Error == "" && !unknown {
			owner.inventory = len(sides[r.From])
			owner.add(compareObjects(sides[r.From], sides[r.To], nil, false))
		}
		r.addOwner(owner)
	}
	return nil
}

func asBuilt(objects []*unstructured.Unstructured) *localbuild.Result {
	return &localbuild.Result{Result: &build.Result{Objects: objects}}
}

func equalSpecs(a, b *helmv2.HelmRelease) bool { return meta.Equal(a.Spec, b.Spec) }

// renderSide builds what the repository declares on one side: Kustomizations, the ResourceSets among their objects, and
// the Kustomizations that these render.
func (r *run) renderSide(ctx context.Context, side *Snapshot, roots []*kustomizev1.Kustomization, files *changeSet) (
	all map[types.NamespacedName]*rendered, sets map[types.NamespacedName]*renderedSet, err error) {
	if all, err = r.renderAll(ctx, side, roots, files); err != nil {
		return nil, nil, err
	}
	for {
		sets = r.renderSets(ctx, all)
		var more []*kustomizev1.Kustomization
		for _, o := range objectsOfSets(sets) {
			k := &kustomizev1.Kustomization{}
			if !isKustomization(o) || manifest.Convert(o, k) != nil {
				continue
			}
			if k.Namespace = cmp.Or(k.Namespace, "default"); all[client.ObjectKeyFromObject(k)] == nil {
				more = append(more, k)
			}
		}
		if len(more) == 0 {
			return all, sets, nil
		}
		found, err := r.renderAll(ctx, side, more, files)
		if err != nil {
			return nil, nil, err
		}
		maps.Copy(all, found)
	}
}

// releasesOf returns the HelmReleases among rendered objects.
func releasesOf(objects []*unstructured.Unstructured) map[types.NamespacedName]*helmv2.HelmRelease {
	out := map[types.NamespacedName]*helmv2.HelmRelease{}
	for _, o := range objects {
		hr := &helmv2.HelmRelease{}
		if isHelmRelease(o) && manifest.Convert(o, hr) == nil {
			hr.Namespace = cmp.Or(hr.Namespace, "default")
			out[client.ObjectKeyFromObject(hr)] = hr
		}
	}
	return out
}

// objectsIn returns the objects that Kustomizations render.
func objectsIn(all map[types.NamespacedName]*rendered) (out []*unstructured.Unstructured) {
	for _, x := range all {
		if x.built != nil {
			out = append(out, x.built.Objects...)
		}
	}
	return out
}
