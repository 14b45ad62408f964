package source

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// sourceSet is the artifacts of the sources, by alias.
type sourceSet map[string]*meta.Artifact

// sources returns the artifacts of all sources. If one is not available, it returns the outcome of the pass instead.
func (g *ArtifactGenerator) sources(ctx context.Context, obj *extensionsv1beta1.ArtifactGenerator) (sourceSet,
	*reconcile.Outcome) {
	set := sourceSet{}
	for _, ref := range obj.Spec.Sources {
		a, outcome := g.source(ctx, obj, ref)
		if outcome != nil {
			return nil, outcome
		}
		set[ref.Alias] = a
	}
	return set, nil
}

// source returns the artifact of a source, or the outcome of the pass if it is not available.
func (g *ArtifactGenerator) source(ctx context.Context, obj *extensionsv1beta1.ArtifactGenerator,
	ref extensionsv1beta1.SourceReference) (*meta.Artifact, *reconcile.Outcome) {
	namespace := namespaceOf(obj, ref)
	if g.NoCrossNamespaceRefs && namespace != obj.Namespace {
		o := reconcile.Failed(fault.New(meta.AccessDeniedReason,
			"source '@%s' is in namespace '%s': cross-namespace references have been blocked", ref.Alias, namespace).
			WithHint("Move it to namespace '%s', or ask whoever runs Sluice with --no-cross-namespace-refs or "+
				"--watch-all-namespaces=false", obj.Namespace).Final())
		return nil, &o
	}
	source := sourcev1.NewSource(ref.Kind)
	if source == nil {
		o := reconcile.Failed(fault.New(extensionsv1beta1.ValidationFailedReason,
			"source '@%s' has kind %s, which has no artifact with files", ref.Alias, ref.Kind).Final())
		return nil, &o
	}
	err := g.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.Name}, source)
	var o reconcile.Outcome
	switch {
	case err == nil && source.GetArtifact() != nil:
		return source.GetArtifact(), nil
	case err == nil:
		o = reconcile.Waiting(extensionsv1beta1.SourceFetchFailedReason,
			"source '@%s', %s '%s/%s', has no artifact. Check its conditions", ref.Alias, ref.Kind, namespace, ref.Name)
	case apierrors.IsNotFound(err):
		o = reconcile.Waiting(extensionsv1beta1.SourceFetchFailedReason,
			"source '@%s', %s '%s/%s', not found. Create it, or correct spec.sources", ref.Alias, ref.Kind, namespace,
			ref.Name)
	default:
		o = reconcile.Failed(fault.New(extensionsv1beta1.SourceFetchFailedReason,
			"cannot read source '@%s', %s '%s/%s'", ref.Alias, ref.Kind, namespace, ref.Name).Because(err))
	}
	return nil, &o
}

// namespaceOf returns the namespace of a source; by default that of the generator.
func namespaceOf(obj *extensionsv1beta1.ArtifactGenerator, s extensionsv1beta1.SourceReference) string {
	if s.Namespace == "" {
		return obj.Namespace
	}
	return s.Namespace
}

// aliases returns the aliases of the sources.
func aliases(obj *extensionsv1beta1.ArtifactGenerator) (names []string) {
	for _, s := range obj.Spec.Sources {
		names = append(names, s.Alias)
	}
	return names
}

// trees fetches the artifacts of the sources.
func (g *ArtifactGenerator) trees(ctx context.Context, obj *extensionsv1beta1.ArtifactGenerator,
	sources sourceSet) (map[string]*artifact.Tree, error) {
	trees := map[string]*artifact.Tree{}
	for _, s := range obj.Spec.Sources {
		key := artifact.Key{Kind: s.Kind, Namespace: namespaceOf(obj, s), Name: s.Name}
		tree, err := g.Artifacts.Fetch(ctx, key, *sources[s.Alias])
		if err != nil {
			return nil, fault.New(extensionsv1beta1.SourceFetchFailedReason, "cannot fetch source '@%s'", s.Alias).
				Because(err)
		}
		trees[s.Alias] = tree
	}
	return trees, nil
}

// digest returns a digest of all sources; it is the revision of the generator.
func (s sourceSet) digest() string {
	var lines []string
	for alias, a := range s {
		lines = append(lines, fmt.Sprintf("%s %s %s\n", alias, a.Revision, a.Digest))
	}
	slices.Sort(lines)
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(strings.Join(lines, ""))))
}

// revision returns the revision of the source with an alias, such as @app; empty for an empty alias.
func (s sourceSet) revision(alias string) string {
	if a := s[strings.TrimPrefix(alias, "@")]; alias != "" && a != nil {
		return a.Revision
	}
	return ""
}

// origin returns the revision that the source was made from, or else its own.
func (s sourceSet) origin(alias string) string {
	if a := s[strings.TrimPrefix(alias, "@")]; alias != "" && a.OriginRevision() != "" {
		return a.OriginRevision()
	}
	return s.revision(alias)
}

// metadata returns the metadata of an artifact that is made from the sources: the revision of its origin, and the trace
// of the source that changed last.
func (s sourceSet) metadata(origin string) map[string]string {
	all := map[string]string{meta.OriginRevisionKey: s.origin(origin)}
	var newest *meta.Artifact
	for _, a := range s {
		if newest == nil || newest.LastUpdateTime.Before(a.LastUpdateTime.Time) {
			newest = a
		}
	}
	if newest != nil {
		all[meta.TraceKey] = newest.Metadata[meta.TraceKey]
	}
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	if len(all) == 0 {
		return nil
	}
	return all
}
