// Package localbuild builds Kustomizations from local files, as the controller builds them from their sources.
package localbuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/build/decrypt"
	"github.com/sluice-gitops/sluice/internal/build/remotebase"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/kustomization/spec"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/offline/lookup"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// Options say from which local files a Kustomization is built.
type Options struct {
	Path string // directory that replaces spec.path
	File string // declares the Kustomization; if empty, it is read from the cluster
	// FollowSymlinks keeps symlinks, as with the feature gate of that name. Artifacts of others do not have them.
	FollowSymlinks bool

	IgnorePaths  []string          // patterns in .gitignore syntax
	Sources      map[string]string // directories of sources, by KIND/NAMESPACE/NAME
	Recursive    bool              // also build the Kustomizations among the built objects
	Strict       bool              // variables without a value and a default are errors
	StrictFields bool              // unknown fields of built-in kinds are errors
	Offline      bool              // do not read the cluster
	// Placeholders replace values of Secrets before anything is built, for changes that were not reviewed.
	Placeholders *redact.Placeholders

	// Fetch and FetchBase fetch remote bases, as [build.Request] says; nil if they are refused.
	Fetch     func(ctx context.Context, url string) ([]byte, error)
	FetchBase func(ctx context.Context, base remotebase.Base) (*artifact.Tree, error)

	// Keys returns the keys of spec.decryption, nil if they are not at hand. Without keys, encrypted values are masked.
	Keys func(ctx context.Context, obj *kustomizev1.Kustomization) (*decrypt.Keys, error)
}

// Validate checks that the options agree. Its errors name the flags.
func (o Options) Validate() error {
	if o.Path == "" && len(o.Sources) == 0 {
		return errors.New("--path is missing")
	}
	if o.Offline && o.File == "" {
		return errors.New("--dry-run does not read the cluster: declare the Kustomization in a file and name it with " +
			"--kustomization-file")
	}
	for source := range o.Sources {
		if strings.Count(source, "/") != 2 {
			return fmt.Errorf("--local-sources %q: use KIND/NAMESPACE/NAME=DIRECTORY", source)
		}
	}
	return nil
}

// Result is a built Kustomization.
type Result struct {
	*build.Result
	Kustomization *kustomizev1.Kustomization

	twin *Result // built with other placeholders; nil without placeholders
	live []string
}

// Builder builds Kustomizations.
type Builder struct {
	options Options
	cluster client.Reader             // nil if the options say Offline
	configs *configOverlay            // nil if the options say Offline
	onSkip  func(message string)      // called for each Kustomization that is left out
	trees   map[string]*artifact.Tree // of sources, by [SourceKey]
	seen    map[types.NamespacedName]bool
	twin    *Builder // with other placeholders; nil without placeholders
}

// New returns a Builder. The cluster may be nil if the options say Offline.
func New(o Options, cluster client.Reader, onSkip func(message string)) *Builder {
	b := &Builder{options: o, onSkip: onSkip, trees: map[string]*artifact.Tree{}, seen: map[types.NamespacedName]bool{}}
	if !o.Offline {
		b.cluster = cluster
		b.configs = newConfigOverlay(cluster)
	}
	if o.Placeholders != nil {
		b.twin = New(o.withoutTwin(), cluster, onSkip)
		b.twin.options.Placeholders, b.twin.trees = redact.NewPlaceholders(), b.trees
	}
	return b
}

func (o Options) withoutTwin() Options {
	o.Placeholders = nil
	return o
}

// Build builds a Kustomization, and with Recursive those among its objects too. It passes each result to use.
func (b *Builder) Build(ctx context.Context, key types.NamespacedName, use func(*Result) error) error {
	obj, err := b.declaration(ctx, key)
	if err != nil {
		return err
	}
	if err := b.replaceSource(ctx, obj); err != nil {
		return err
	}
	return b.build(ctx, obj, use)
}

// declaration returns the Kustomization from the file, or else from the cluster.
func (b *Builder) declaration(ctx context.Context, key types.NamespacedName) (*kustomizev1.Kustomization, error) {
	if b.options.File == "" {
		obj, err := lookup.Get(ctx, b.cluster, kind.ByName(kustomizev1.KustomizationKind), key)
		if err != nil {
			return nil, err
		}
		return obj.(*kustomizev1.Kustomization), nil
	}
	obj := &kustomizev1.Kustomization{}
	return obj, manifest.Find(b.options.File, kustomizationKind, key, obj)
}

var kustomizationKind = schema.GroupKind{Group: kustomizev1.GroupVersion.Group, Kind: kustomizev1.KustomizationKind}

// build builds a Kustomization whose source is local.
func (b *Builder) build(ctx context.Context, obj *kustomizev1.Kustomization, use func(*Result) error) error {
	b.seen[client.ObjectKeyFromObject(obj)] = true
	result, err := b.BuildObject(ctx, obj)
	if err != nil {
		return err
	}
	if err := use(result); err != nil || !b.options.Recursive {
		return err
	}
	b.AddConfigs(result)
	return b.buildNested(ctx, result.Objects, use)
}

// BuildObject builds a Kustomization that was read already, and whose source is local.
func (b *Builder) BuildObject(ctx context.Context, obj *kustomizev1.Kustomization) (*Result, error) {
	key := client.ObjectKeyFromObject(obj)
	tree, err := b.tree(ctx, obj)
	if err != nil {
		return nil, err
	}
	if tree == nil {
		return nil, fmt.Errorf("the source of Kustomization '%s' is not local. Set --local-sources %s=DIRECTORY", key,
			SourceKey(obj))
	}
	req, secrets, err := b.request(ctx, obj, tree)
	if err != nil {
		return nil, fmt.Errorf("Kustomization '%s': %w", key, err)
	}
	result, err := build.Build(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("Kustomization '%s': %w", key, redact.Error(err, secrets...))
	}
	built := &Result{Result: result, Kustomization: obj}
	if b.twin != nil && b.options.Placeholders.Used() {
		if built.twin, err = b.twin.BuildObject(ctx, obj); err != nil {
			return nil, err
		}
		built.Veil = &redact.Veil{}
		if differ(built.Objects, built.twin.Objects) {
			built.Veil.Render = func() (objects, placeholders []*unstructured.Unstructured, err error) {
				return built.Objects, built.twin.Objects, nil
			}
		}
	}
	return built, nil
}

// differ reports whether two renders of the same objects with different placeholders differ.
func differ(a, b []*unstructured.Unstructured) bool {
	return !slices.EqualFunc(a, b, func(a, b *unstructured.Unstructured) bool { return meta.Equal(a.Object, b.Object) })
}

// Known returns what may be shown of the objects of a build; nil if nothing comes from secrets.
func (r *Result) Known() *redact.Known {
	if r == nil || r.Result == nil {
		return nil
	}
	return r.Veil.Known()
}

// Renders returns the objects of a build with placeholders, and the same objects with other placeholders.
func (r *Result) Renders() (objects, others []*unstructured.Unstructured, err error) {
	switch {
	case r == nil || r.Result == nil:
		return nil, nil, nil
	case r.twin == nil:
		return r.Objects, r.Objects, nil // nothing comes from secrets
	}
	return r.Objects, r.twin.Objects, nil
}

// AddConfigs makes built ConfigMaps and Secrets visible to the builds after it, as if they were applied.
func (b *Builder) AddConfigs(r *Result) {
	if b.configs != nil {
		b.configs.add(r.Objects)
	}
	switch {
	case b.twin == nil:
	case r.twin != nil:
		b.twin.AddConfigs(r.twin)
	default:
		b.twin.AddConfigs(r) // nothing comes from secrets
	}
}

// Configs reads ConfigMaps and Secrets as they are once the built objects are applied.
func (b *Builder) Configs() client.Reader { return b.configs }

// placeholderSecrets reads Secrets with placeholders for their values.
type placeholderSecrets struct {
	client.Reader
	placeholders *redact.Placeholders
}

// Get implements [client.Reader].
func (p placeholderSecrets) Get(ctx context.Context, key client.ObjectKey, obj client.Object,
	o ...client.GetOption) error {
	err := p.Reader.Get(ctx, key, obj, o...)
	if secret, ok := obj.(*corev1.Secret); ok && err == nil {
		secret.Data = p.placeholders.Data(key.Namespace, key.Name, secret.Data)
	}
	return err
}

// request returns the build that the controller would run, and the values of its variables that come from Secrets.
// Without keys, encrypted values are masked.
func (b *Builder) request(ctx context.Context, obj *kustomizev1.Kustomization, tree *artifact.Tree) (
	req build.Request, secrets []string, err error) {
	if req, err = spec.Request(obj); err != nil {
		return req, nil, err
	}
	var configs client.Reader
	if b.configs != nil {
		configs = b.configs
	}
	if b.options.Placeholders != nil && configs != nil {
		configs = placeholderSecrets{configs, b.options.Placeholders}
	}
	variables, err := spec.ReadVariables(ctx, configs, obj)
	if err != nil {
		return req, nil, err
	}
	labels := maps.Clone(req.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, OwnerOf(obj).Labels())
	req.Labels = labels
	req.Fetch, req.FetchBase = b.options.Fetch, b.options.FetchBase
	req.Tree, req.Substitution = tree, variables.Substitution(b.options.Strict)
	if obj.Spec.Decryption != nil && b.options.Keys != nil {
		if req.Decryption, err = b.options.Keys(ctx, obj); err != nil {
			return req, nil, err
		}
		if req.Decryption != nil {
			req.Decryption.Placeholders = b.options.Placeholders
		}
	}
	req.Redact, req.Placeholders = obj.Spec.Decryption != nil && req.Decryption == nil, b.options.Placeholders
	for name := range variables.Secret {
		secrets = append(secrets, variables.Values[name])
	}
	return req, secrets, nil
}

// OwnerOf returns a Kustomization as the owner of what it applies.
func OwnerOf(obj *kustomizev1.Kustomization) apply.Owner {
	return apply.Owner{Group: kustomizev1.GroupVersion.Group, Namespace: obj.Namespace, Name: obj.Name}
}

// buildNested builds the Kustomizations among the objects of another one. It skips those without a local source.
func (b *Builder) buildNested(ctx context.Context, objects []*unstructured.Unstructured,
	use func(*Result) error) error {
	for _, o := range objects {
		if o.GroupVersionKind().GroupKind() != kustomizationKind {
			continue
		}
		obj := &kustomizev1.Kustomization{}
		if err := manifest.Convert(o, obj); err != nil {
			return err
		}
		obj.Namespace = cmp.Or(obj.Namespace, metav1.NamespaceDefault)
		key := client.ObjectKeyFromObject(obj)
		if b.seen[key] {
			continue
		}
		if _, local := b.options.Sources[SourceKey(obj)]; !local && b.trees[SourceKey(obj)] == nil {
			b.seen[key] = true
			b.onSkip(fmt.Sprintf("Kustomization '%s' was skipped: its source is not local. Set --local-sources "+
				"%s=DIRECTORY", key, SourceKey(obj)))
			continue
		}
		if err := b.build(ctx, obj, use); err != nil {
			return err
		}
	}
	return nil
}
