// Package localrelease renders HelmReleases for the command line as their controller does: from a local chart, or from
// the artifact of their source.
package localrelease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	helmaction "helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	release "helm.sh/helm/v4/pkg/release/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/helm/kube"
	"github.com/sluice-gitops/sluice/internal/helm/postrender"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/helm/values"
	"github.com/sluice-gitops/sluice/internal/helmrelease"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/offline/lookup"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// Options say from where a HelmRelease is rendered.
type Options struct {
	Path    string // of a chart: a directory or an archive; if empty, the artifact of the source is used
	File    string // declares the HelmRelease; if empty, it is read from the cluster
	Offline bool   // do not read the cluster

	Chart    *artifact.Tree // that was read already
	Revision string         // of the chart, if it is part of the version; see [Tracked]

	// Files returns the tree of a source that spec.valuesFrom names; those of the cluster if it is nil. It is nil for a
	// source that is not known offline.
	Files func(ctx context.Context, kind string, key types.NamespacedName) (*artifact.Tree, error)

	// Placeholders replace values of Secrets before the chart is rendered, and lookup finds nothing: for changes that
	// were not reviewed. May be nil.
	Placeholders *redact.Placeholders

	Renderer *render.Renderer // nil to start a process for the release
}

// Validate checks that the options agree. Its errors name the flags.
func (o Options) Validate() error {
	if o.Offline && (o.File == "" || o.Path == "") {
		return errors.New("--dry-run does not read the cluster: name a file that declares the HelmRelease with " +
			"--helmrelease-file, and the chart with --path")
	}
	return nil
}

// Cluster is the cluster of a HelmRelease.
type Cluster struct {
	Client client.Reader
	Config *rest.Config
	Target *apply.Cluster
}

// Result is a rendered HelmRelease.
type Result struct {
	Object  *helmv2.HelmRelease
	Live    bool                         // whether the HelmRelease is in the cluster
	Objects []*unstructured.Unstructured // of the release, as they are applied
	Hooks   []*unstructured.Unstructured
	CRDs    []*unstructured.Unstructured // of the directories crds/
	Veil    *redact.Veil                 // hides what comes from secrets

	twin *Result // rendered with other placeholders; nil without placeholders
	live []string
}

// Builder renders HelmReleases.
type Builder struct {
	options Options
	cluster *Cluster // nil if the options say Offline
	warn    func(message string)
}

// New returns a Builder. The cluster is nil if the options say Offline.
func New(o Options, c *Cluster, warn func(message string)) *Builder {
	return &Builder{options: o, cluster: c, warn: warn}
}

// Build renders a HelmRelease. It changes nothing in the cluster.
func (b *Builder) Build(ctx context.Context, key types.NamespacedName) (*Result, error) {
	result := &Result{}
	var err error
	if result.Object, result.Live, err = b.declaration(ctx, key); err != nil {
		return nil, err
	}
	return b.BuildObject(ctx, result.Object, result.Live)
}

// BuildObject renders a HelmRelease that was read already. live says whether it is in the cluster.
func (b *Builder) BuildObject(ctx context.Context, obj *helmv2.HelmRelease, live bool) (*Result, error) {
	result := &Result{Object: obj, Live: live}
	secrets, err := b.build(ctx, result, b.options.Placeholders)
	if err != nil {
		return nil, fmt.Errorf("HelmRelease '%s': %w", client.ObjectKeyFromObject(obj),
			b.withoutSecrets(ctx, result, err))
	}
	result.Veil = &redact.Veil{Secrets: secrets}
	if p := b.options.Placeholders; p != nil && !p.Used() {
		return result, nil
	}
	render := func() (*Result, error) {
		twin := &Result{Object: obj, Live: live}
		placeholders := redact.Unlike()
		if b.options.Placeholders != nil {
			placeholders = redact.NewPlaceholders()
		}
		_, err := b.build(ctx, twin, placeholders)
		return twin, err
	}
	if b.options.Placeholders != nil {
		if result.twin, err = render(); err != nil {
			return nil, fmt.Errorf("HelmRelease '%s': %w", client.ObjectKeyFromObject(obj), err)
		}
		render = func() (*Result, error) { return result.twin, nil }
	}
	result.Veil.Render = func() (objects, placeholders []*unstructured.Unstructured, err error) {
		twin, err := render()
		if err != nil {
			return nil, nil, err
		}
		return result.all(), twin.all(), nil
	}
	return result, nil
}

// all returns all objects of a release.
func (result *Result) all() []*unstructured.Unstructured {
	return slices.Concat(result.CRDs, result.Hooks, result.Objects)
}

// withoutSecrets returns the error of a render without values of Secrets, which a template may have put into it.
func (b *Builder) withoutSecrets(ctx context.Context, result *Result, err error) error {
	if b.options.Placeholders != nil || !errors.As(err, new(*render.Error)) || b.cluster == nil {
		return err
	}
	_, other := b.build(ctx, &Result{Object: result.Object, Live: result.Live}, redact.Unlike())
	if !errors.As(other, new(*render.Error)) {
		return errors.New("rendering fails because of values from Secrets. The error is not shown, because it may " +
			"contain a secret")
	}
	return other
}

// build renders a HelmRelease, with placeholders for values of Secrets unless they are nil. It returns these values.
func (b *Builder) build(ctx context.Context, result *Result, placeholders *redact.Placeholders) (secrets []string,
	err error) {
	obj := result.Object
	ch, archive, err := b.chart(ctx, obj)
	if err != nil {
		return nil, err
	}
	composed, err := b.values(ctx, obj, placeholders)
	if err != nil {
		return nil, err
	}
	defer composed.Memory.Release()
	request := render.Request{Chart: archive, Values: composed.Values, Release: b.release(result),
		SkipSchemaValidation: skipsSchema(obj, result.Live)}
	capabilities := common.DefaultCapabilities
	if b.cluster != nil {
		if capabilities, err = helmrelease.Capabilities(b.cluster.Target); err != nil {
			return nil, lookup.Explain("cannot read what the cluster serves", err)
		}
		request.Lookup = b.lookup(placeholders)
	}
	request.KubeVersion, request.APIVersions = capabilities.KubeVersion.Version, capabilities.APIVersions
	request.KubeMajor, request.KubeMinor = capabilities.KubeVersion.Major, capabilities.KubeVersion.Minor
	renderer := b.options.Renderer
	if renderer == nil {
		renderer = render.New(render.Options{Children: 1})
		defer renderer.Close()
	}
	rendered, err := renderer.Render(ctx, request)
	if err != nil {
		return nil, err
	}
	options := helmrelease.PostRenderOptions(obj, obj.Spec.PostRenderStrategy)
	if rendered.Files, err = postrender.Change(ctx, rendered.Files, options); err != nil {
		return nil, err
	}
	rel, err := template(obj, render.Prerendered(ch, rendered), composed.Values, capabilities)
	if err != nil {
		return nil, err
	}
	return composed.Secrets, b.decode(result, ch, rel)
}

// lookup returns the function lookup of templates; nil if it finds nothing.
func (b *Builder) lookup(placeholders *redact.Placeholders) render.Lookup {
	lookup := helmrelease.Lookup(b.cluster.Target)
	switch {
	case b.options.Placeholders != nil:
		return nil // whoever proposes a change could look up all that its reviewer may read
	case placeholders == nil:
		return lookup
	}
	return func(ctx context.Context, apiVersion, kind, namespace, name string) (map[string]any, error) {
		found, err := lookup(ctx, apiVersion, kind, namespace, name)
		return placeholders.Found(found), err
	}
}

// release returns what templates see as .Release.
func (b *Builder) release(result *Result) render.Release {
	obj := result.Object
	r := render.Release{Name: helmrelease.ReleaseName(obj), Namespace: obj.GetReleaseNamespace(), Revision: 1}
	if history := obj.Status.History; len(history) > 0 {
		r.Revision, r.IsUpgrade = history[0].Version+1, true
	}
	r.IsInstall = !r.IsUpgrade
	return r
}

func skipsSchema(obj *helmv2.HelmRelease, live bool) bool {
	if live && len(obj.Status.History) > 0 {
		return obj.Spec.Upgrade != nil && obj.Spec.Upgrade.DisableSchemaValidation
	}
	return obj.Spec.Install != nil && obj.Spec.Install.DisableSchemaValidation
}

// template runs Helm's install action on a rendered chart, without a cluster.
func template(obj *helmv2.HelmRelease, ch *chart.Chart, composed map[string]any,
	capabilities *common.Capabilities) (*release.Release, error) {
	install := helmaction.NewInstall(helmaction.NewConfiguration())
	install.DryRunStrategy, install.SkipSchemaValidation = helmaction.DryRunClient, true
	install.ReleaseName, install.Namespace = helmrelease.ReleaseName(obj), obj.GetReleaseNamespace()
	install.KubeVersion, install.APIVersions = &capabilities.KubeVersion, capabilities.APIVersions
	rel, err := install.Run(ch, composed)
	if err != nil {
		return nil, err
	}
	return rel.(*release.Release), nil
}

// OwnerOf returns a HelmRelease as the owner of what it applies.
func OwnerOf(obj *helmv2.HelmRelease) apply.Owner {
	return apply.Owner{Group: helmv2.GroupVersion.Group, Namespace: obj.Namespace, Name: obj.Name}
}

// decode adds the objects of a release to the result.
func (b *Builder) decode(result *Result, ch *chart.Chart, rel *release.Release) error {
	var err error
	if result.Objects, err = kube.Decode(strings.NewReader(rel.Manifest)); err != nil {
		return err
	}
	for _, o := range result.Objects {
		kube.SetMetadata(o, rel.Name, rel.Namespace)
	}
	for _, h := range rel.Hooks {
		hooks, err := kube.Decode(strings.NewReader(h.Manifest))
		if err != nil {
			return err
		}
		result.Hooks = append(result.Hooks, hooks...)
	}
	for _, crd := range ch.CRDObjects() {
		crds, err := kube.Decode(strings.NewReader(string(crd.File.Data)))
		if err != nil {
			return fmt.Errorf("%s: %w", crd.Filename, err)
		}
		result.CRDs = append(result.CRDs, crds...)
	}
	for _, o := range append(result.Objects, result.Hooks...) {
		if o.GetNamespace() == "" && b.isNamespaced(o) {
			o.SetNamespace(rel.Namespace)
		}
	}
	return nil
}

// isNamespaced reports whether the cluster is known to have objects of this kind in namespaces.
func (b *Builder) isNamespaced(o *unstructured.Unstructured) bool {
	if b.cluster == nil {
		return false
	}
	gvk := o.GroupVersionKind()
	mapping, err := b.cluster.Target.Mapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	return err == nil && mapping.Scope.Name() == apimeta.RESTScopeNameNamespace
}

// declaration returns the HelmRelease from the file, with the status of the one in the cluster, or that one.
func (b *Builder) declaration(ctx context.Context, key types.NamespacedName) (obj *helmv2.HelmRelease, live bool,
	err error) {
	found := &helmv2.HelmRelease{}
	if b.cluster != nil {
		err := b.cluster.Client.Get(ctx, key, found)
		if client.IgnoreNotFound(err) != nil {
			return nil, false, lookup.Explain(fmt.Sprintf("cannot get HelmRelease '%s'", key), err)
		}
		live = err == nil
	}
	switch {
	case b.options.File == "" && !live:
		return nil, false, lookup.NotFound(kind.ByName(helmv2.HelmReleaseKind), key)
	case b.options.File == "":
		return found, true, nil
	}
	obj = &helmv2.HelmRelease{}
	err = manifest.Find(b.options.File, helmv2.GroupVersion.WithKind(helmv2.HelmReleaseKind).GroupKind(), key, obj)
	obj.Status = found.Status
	return obj, live, err
}

// values composes the values of a HelmRelease. Without a cluster, those of other objects are left out.
func (b *Builder) values(ctx context.Context, obj *helmv2.HelmRelease,
	placeholders *redact.Placeholders) (*values.Composed, error) {
	refs, files := obj.Spec.ValuesFrom, b.options.Files
	r := reader{obj: obj, files: files, warn: b.warn}
	if b.cluster == nil {
		refs = slices.DeleteFunc(slices.Clone(refs), func(ref meta.ValuesReference) bool {
			if !ref.IsFile() || files == nil {
				return true
			}
			tree, err := files(ctx, ref.Kind, sourceOf(obj, ref))
			return err == nil && tree == nil
		})
		if len(refs) < len(obj.Spec.ValuesFrom) {
			b.warn("values of spec.valuesFrom that are not in the repository are not used: the cluster is not read")
		}
	} else {
		r.cluster = *b.cluster
	}
	var read values.Reader = r
	if placeholders != nil {
		read = values.WithPlaceholders(read, refs, placeholders)
	}
	return values.Compose(ctx, read, obj.Namespace, refs, obj.Spec.Values)
}

// sourceOf returns the source of a file with values.
func sourceOf(obj *helmv2.HelmRelease, ref meta.ValuesReference) types.NamespacedName {
	return types.NamespacedName{Namespace: cmp.Or(ref.Namespace, obj.Namespace), Name: ref.Name}
}

// TraceValues composes the values of a HelmRelease in a cluster, and says where they come from.
func TraceValues(ctx context.Context, c Cluster, obj *helmv2.HelmRelease, warn func(message string)) (map[string]any,
	[]values.Origin, error) {
	return values.Trace(ctx, reader{cluster: c, obj: obj, warn: warn}, obj.Namespace, obj.Spec.ValuesFrom,
		obj.Spec.Values)
}
