package preview

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build/decrypt"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/helm/kube"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/offline/localbuild"
	"github.com/sluice-gitops/sluice/internal/offline/localset"
	"github.com/sluice-gitops/sluice/internal/offline/localsource"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// Options say what is previewed.
type Options struct {
	From, To *Snapshot
	Sources  []string // that hold the repository, as KIND/NAMESPACE/NAME[=DIRECTORY]; if empty, they are found by URL
	URLs     []string // of the repository
	Branch   string   // that the change lands on; sources of other branches are left out. Empty for all
	// Namespaces are tried if the account may not list objects of all namespaces.
	Namespaces []string
	Strict     bool // variables without a value and a default are errors
	Rules      *risk.Rules

	Cluster *Cluster // nil to compare what is rendered before and after

	// Without Cluster: Kustomizations that apply the repository, if it declares none itself.
	Roots []*kustomizev1.Kustomization
	// Keyless decrypts nothing, even if the process has keys.
	Keyless bool
	Cache   *Cache // may be nil
}

// Cluster is the cluster that the change would land in.
type Cluster struct {
	Client client.Client
	Config *rest.Config
	Target *apply.Cluster // that applies as Kustomizations do

	mu       sync.Mutex
	releases *apply.Cluster // that applies as HelmReleases do; nil until it is needed
	sets     *apply.Cluster // that applies as ResourceSets do; nil until it is needed
}

// releaseTarget returns the cluster that applies with the field manager of releases: objects that another one manages
// would be changes.
func (c *Cluster) releaseTarget() (target *apply.Cluster, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.releases == nil {
		c.releases, err = apply.NewCluster(c.Config, apply.ClusterOptions{FieldManager: kube.FieldManager,
			OverrideManagers: []string{"helm"}})
	}
	return c.releases, err
}

// setTarget returns the cluster that applies with the field manager of ResourceSets.
func (c *Cluster) setTarget() (target *apply.Cluster, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sets == nil {
		c.sets, err = localset.NewTarget(c.Config)
	}
	return c.sets, err
}

// Close ends the connections.
func (c *Cluster) Close() {
	for _, target := range []*apply.Cluster{c.Target, c.releases, c.sets} {
		if target != nil {
			target.Close()
		}
	}
}

// Run computes a preview. Owners that cannot be computed are part of the result, with their error.
func Run(ctx context.Context, o Options) (*Result, error) {
	r := &run{Options: o,
		result:       &Result{From: o.From.Name, To: o.To.Name, Offline: o.Cluster == nil, Owners: []*Owner{}},
		placeholders: redact.NewPlaceholders(), configs: map[string]bool{},
		inputs:   map[apply.Ref]changedInputs{},
		declared: map[string]client.Object{}, declaredSpecs: map[string]any{}}
	r.forget()
	r.result.Files = changedFiles(o.From.tree.Root(), o.To.tree.Root())
	for _, s := range o.To.submodules {
		r.note("submodule '%s' is not read: changes in it are not part of the preview", s)
	}
	if err := r.nameSources(); err != nil {
		return nil, err
	}
	r.renderer = render.New(render.Options{Children: 1})
	defer r.renderer.Close()
	r.reader = r.newReader()
	defer r.reader.Close()
	var err error
	if o.Cluster == nil {
		err = r.offline(ctx)
	} else {
		err = r.live(ctx)
	}
	if err != nil {
		return nil, err
	}
	r.result.sources = r.askedSources()
	r.result.finish(ctx, o.Rules, risk.Change{Author: o.To.Author, Message: o.To.Message, Files: r.result.Files})
	if slices.Contains(r.result.Files, risk.FileName) {
		r.note("the change edits %s; it was classified by the rules before the change", risk.FileName)
	}
	return r.result, nil
}

// run is a preview in progress.
type run struct {
	Options
	result  *Result
	sources map[string]*source // by KIND/NAMESPACE/NAME
	named   []namedSource      // of --source
	// placeholders stand for all values of Secrets: the change was not reviewed, so nothing in it may see a value.
	placeholders *redact.Placeholders
	renderer     *render.Renderer // of all charts and ResourceSets, so that they share a process
	before       *localbuild.Builder
	after        *localbuild.Builder
	reader       *localsource.Reader         // of sources that are not this repository
	configs      map[string]bool             // ConfigMaps and Secrets that change, as Kind/namespace/name
	inputs       map[apply.Ref]changedInputs // providers of inputs that change

	// Sources that the change creates or changes, by KIND/NAMESPACE/NAME, and their specs.
	declared      map[string]client.Object
	declaredSpecs map[string]any

	// By source, and forgotten when the change declares another spec of one.
	trees   map[reachKey]*artifact.Tree // nil while it is composed
	reaches map[reachKey]*reach
	changes map[string]*changeSet
}

// forget removes what was computed of sources.
func (r *run) forget() {
	r.trees, r.reaches, r.changes = map[reachKey]*artifact.Tree{}, map[reachKey]*reach{}, map[string]*changeSet{}
}

type reachKey struct {
	side   *Snapshot
	source string
}

func (r *run) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.result.Notes, text) {
		r.result.Notes = append(r.result.Notes, text)
	}
}

// changed returns the files of a source that the change changes.
func (r *run) changed(ctx context.Context, s *source) (*changeSet, error) {
	if c := r.changes[s.key]; c != nil {
		return c, nil
	}
	from, err := r.tree(ctx, r.From, s)
	if err != nil {
		return nil, err
	}
	to, err := r.tree(ctx, r.To, s)
	if err != nil {
		return nil, err
	}
	r.changes[s.key] = newChangeSet(changedFiles(from.Root(), to.Root()))
	return r.changes[s.key], nil
}

// reachOf returns the reach of builds of a source before or after the change.
func (r *run) reachOf(ctx context.Context, side *Snapshot, s *source) (*reach, error) {
	key := reachKey{side: side, source: s.key}
	if r.reaches[key] == nil {
		tree, err := r.tree(ctx, side, s)
		if err != nil {
			return nil, err
		}
		r.reaches[key] = newReach(tree)
	}
	return r.reaches[key], nil
}

// mayChange reports whether the changed files may change the build of a Kustomization.
func (r *run) mayChange(ctx context.Context, obj *kustomizev1.Kustomization) (bool, error) {
	s := r.sources[localbuild.SourceKey(obj)]
	if s == nil {
		return false, nil
	}
	files, err := r.changed(ctx, s)
	if err != nil {
		return false, err
	}
	reach, err := r.reachOf(ctx, r.From, s)
	if err != nil {
		return false, err
	}
	return reach.touches(obj.Spec.Path, obj.Spec.Components, files), nil
}

// build builds a Kustomization from the files of a side.
func (r *run) build(ctx context.Context, side *Snapshot, obj *kustomizev1.Kustomization) (*localbuild.Result, error) {
	builder := r.after
	if side == r.From {
		builder = r.before
	}
	tree, err := r.treeFor(ctx, side, obj)
	if err != nil {
		return nil, err
	}
	obj = obj.DeepCopy()
	builder.UseSource(obj, tree)
	key := r.buildKey(obj)
	built := r.Cache.build(key, tree, obj)
	if built == nil {
		if built, err = builder.BuildObject(ctx, obj); err == nil {
			r.Cache.addBuild(key, built)
		}
	}
	if err == nil && side == r.To {
		for _, w := range built.Warnings {
			r.note("Kustomization '%s/%s': %s", obj.Namespace, obj.Name, w)
		}
	}
	return built, err
}

// usesConfig reports whether one of the ConfigMaps and Secrets that change is named by references.
func (r *run) usesConfig(namespace string, kindsAndNames ...[2]string) bool {
	return slices.ContainsFunc(kindsAndNames, func(ref [2]string) bool {
		return r.configs[ref[0]+"/"+namespace+"/"+ref[1]]
	})
}

func variablesOf(obj *kustomizev1.Kustomization) (out [][2]string) {
	if obj.Spec.PostBuild != nil {
		for _, f := range obj.Spec.PostBuild.SubstituteFrom {
			out = append(out, [2]string{f.Kind, f.Name})
		}
	}
	return out
}

func valuesOf(obj *helmv2.HelmRelease) (out [][2]string) {
	for _, f := range obj.Spec.ValuesFrom {
		out = append(out, [2]string{f.Kind, f.Name})
	}
	return out
}

// isKind reports whether an object is of a kind, in any version.
func isKind(o *unstructured.Unstructured, group, kind string) bool {
	gvk := o.GroupVersionKind()
	return gvk.Group == group && gvk.Kind == kind
}

func isKustomization(o *unstructured.Unstructured) bool {
	return isKind(o, kustomizev1.GroupVersion.Group, kustomizev1.KustomizationKind)
}

func isHelmRelease(o *unstructured.Unstructured) bool {
	return isKind(o, helmv2.GroupVersion.Group, helmv2.HelmReleaseKind)
}

// clusterOf names the cluster of spec.kubeConfig; empty for the own one.
func clusterOf(namespace string, k *meta.KubeConfigReference) string {
	switch {
	case k == nil:
		return ""
	case k.ConfigMapRef != nil:
		return namespace + "/" + k.ConfigMapRef.Name
	case k.SecretRef != nil:
		return namespace + "/" + k.SecretRef.Name
	}
	return namespace + "/"
}

// keys returns the keys of Kustomizations for [localbuild.Options].
func (r *run) keys(cluster client.Reader) func(context.Context, *kustomizev1.Kustomization) (*decrypt.Keys, error) {
	if !r.Keyless {
		return localbuild.KeysOf(cluster, r.note)
	}
	return func(context.Context, *kustomizev1.Kustomization) (*decrypt.Keys, error) {
		r.note("nothing is decrypted: encrypted values are assumed to be unchanged")
		return nil, nil
	}
}

func newOwner(kind string, key types.NamespacedName) *Owner {
	return &Owner{Owner: risk.Owner{Kind: kind, Namespace: key.Namespace, Name: key.Name},
		restore: func(o *unstructured.Unstructured) *unstructured.Unstructured { return o }}
}

// SameRepository reports whether two addresses name the same repository, by https or by ssh.
func SameRepository(a, b string) bool { return a != "" && normalized(a) == normalized(b) }

func normalized(address string) string {
	if _, rest, ok := strings.Cut(address, "://"); ok {
		address = rest
	} else {
		address = strings.Replace(address, ":", "/", 1) // git@host:path
	}
	if user, rest, ok := strings.Cut(address, "@"); ok && !strings.Contains(user, "/") {
		address = rest
	}
	host, path, _ := strings.Cut(address, "/")
	return strings.ToLower(host) + "/" + strings.TrimSuffix(strings.Trim(path, "/"), ".git")
}
