package kustomization

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/expression"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

var sourceGroup = sourcev1.GroupVersion.Group

// source returns the artifact to apply, or what the Kustomization waits for.
func (k *Kustomization) source(ctx context.Context, obj *kustomizev1.Kustomization) (*meta.Artifact,
	*reconcile.Outcome) {
	ref := obj.Spec.SourceRef
	namespace := orOwn(obj, ref.Namespace)
	if err := k.allowed(obj, "spec.sourceRef", namespace); err != nil {
		return nil, ptr.To(reconcile.Failed(err))
	}
	source := sourcev1.NewSource(ref.Kind)
	if source == nil || ref.Kind == sourcev1.HelmChartKind {
		return nil, ptr.To(reconcile.Failed(fault.New(meta.ArtifactFailedReason,
			"spec.sourceRef.kind %s is not one that holds manifests", ref.Kind).
			WithHint("Use a GitRepository, OCIRepository, Bucket or ExternalArtifact").Final()))
	}
	err := k.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.Name}, source)
	switch {
	case apierrors.IsNotFound(err):
		return nil, ptr.To(reconcile.Waiting(meta.ArtifactFailedReason,
			"%s '%s/%s' not found. Create it, or correct spec.sourceRef", ref.Kind, namespace, ref.Name))
	case err != nil:
		return nil, ptr.To(reconcile.Failed(fault.New(meta.ArtifactFailedReason, "cannot read %s '%s/%s'", ref.Kind,
			namespace, ref.Name).Because(err)))
	case source.GetArtifact() == nil:
		return nil, ptr.To(reconcile.Waiting(meta.ArtifactFailedReason,
			"Source artifact not found: %s '%s/%s' has none yet. Its own conditions say why", ref.Kind, namespace,
			ref.Name))
	}
	return source.GetArtifact(), nil
}

// dependencies returns what the Kustomization waits for among spec.dependsOn, or nil.
func (k *Kustomization) dependencies(ctx context.Context, obj *kustomizev1.Kustomization,
	source *meta.Artifact) *reconcile.Outcome {
	if cycle := k.cycle(ctx, obj); cycle != nil {
		return ptr.To(reconcile.Failed(fault.New(meta.DependencyNotReadyReason, "dependency cycle: %s",
			strings.Join(cycle, " → ")).
			WithHint("Remove one of these dependsOn entries").Final()))
	}
	for _, d := range obj.Spec.DependsOn {
		namespace := orOwn(obj, d.Namespace)
		if err := k.allowed(obj, "spec.dependsOn", namespace); err != nil {
			return ptr.To(reconcile.Failed(err))
		}
		var dependency kustomizev1.Kustomization
		err := k.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: d.Name}, &dependency)
		switch {
		case apierrors.IsNotFound(err):
			return ptr.To(reconcile.Waiting(meta.DependencyNotReadyReason,
				"dependency '%s/%s' not found. Create it, or remove it from spec.dependsOn", namespace, d.Name))
		case err != nil:
			return ptr.To(reconcile.Failed(fault.New(meta.DependencyNotReadyReason, "cannot read dependency '%s/%s'",
				namespace, d.Name).Because(err)))
		case d.ReadyExpr != "":
			if waiting := holds(ctx, obj, &dependency, d.ReadyExpr); waiting != nil {
				return waiting
			}
			if k.Options.AdditiveReadyExpr && !reconcile.IsReady(&dependency) {
				return ptr.To(reconcile.Waiting(meta.DependencyNotReadyReason, "dependency '%s/%s' is not ready",
					namespace, d.Name))
			}
		case !reconcile.IsReady(&dependency):
			return ptr.To(reconcile.Waiting(meta.DependencyNotReadyReason, "dependency '%s/%s' is not ready", namespace,
				d.Name))
		case sameSource(obj, &dependency) && dependency.Status.LastAppliedRevision != source.Revision &&
			!k.untouched(ctx, &dependency, source):
			return ptr.To(reconcile.Waiting(meta.DependencyNotReadyReason,
				"dependency '%s/%s' has not applied revision %s yet", namespace, d.Name, source.Revision))
		}
	}
	return nil
}

// untouched tells whether a Ready Kustomization stands as the revision declares it, too, although it did not
// look yet: nothing that it is built from is different. So a chain of them does not wait for each to say so.
func (k *Kustomization) untouched(ctx context.Context, obj *kustomizev1.Kustomization, source *meta.Artifact) bool {
	stands := k.remembered(obj).stands.Load()
	if stands == nil || stands.generation != obj.Generation {
		return false
	}
	tree, err := k.Artifacts.Fetch(ctx, *source)
	return err == nil && stands.trace.Unchanged(tree)
}

// holds tells what is to be waited for by a readyExpr, which stands in for the condition Ready: it sees the
// dependent as self and the dependency as dep.
func holds(ctx context.Context, obj, dependency *kustomizev1.Kustomization, source string) *reconcile.Outcome {
	about := fmt.Sprintf("dependency '%s/%s'", dependency.Namespace, dependency.Name)
	e, err := expression.Compile(source, "self", "dep")
	if err != nil {
		return ptr.To(reconcile.Failed(fault.New(meta.InvalidCELExpressionReason, "the readyExpr of %s cannot be read",
			about).Because(err).
			WithHint("Correct spec.dependsOn[].readyExpr; it sees this Kustomization as self and the other as dep").
			Final()))
	}
	self, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return ptr.To(reconcile.Failed(err))
	}
	dep, err := runtime.DefaultUnstructuredConverter.ToUnstructured(dependency)
	if err != nil {
		return ptr.To(reconcile.Failed(err))
	}
	ready, err := e.Holds(ctx, expression.Map{"self": self, "dep": dep})
	switch {
	case err != nil:
		return ptr.To(reconcile.Waiting(meta.DependencyNotReadyReason, "%s is not ready: '%s' cannot be told yet: %v",
			about, source, err))
	case !ready:
		return ptr.To(reconcile.Waiting(meta.DependencyNotReadyReason, "%s is not ready: '%s' does not hold", about,
			source))
	}
	return nil
}

// cycle returns the names along a cycle of dependsOn that the object is part of, or nil.
func (k *Kustomization) cycle(ctx context.Context, obj *kustomizev1.Kustomization) []string {
	self := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
	seen := map[types.NamespacedName]bool{}
	var walk func(at *kustomizev1.Kustomization, path []string) []string
	walk = func(at *kustomizev1.Kustomization, path []string) []string {
		for _, d := range at.Spec.DependsOn {
			key := types.NamespacedName{Namespace: orOwn(at, d.Namespace), Name: d.Name}
			next := append(slices.Clone(path), key.String())
			if key == self {
				return next
			}
			if seen[key] {
				continue
			}
			seen[key] = true
			var dependency kustomizev1.Kustomization
			if k.Client.Get(ctx, key, &dependency) != nil {
				continue // a dependency that is not there closes no cycle
			}
			if found := walk(&dependency, next); found != nil {
				return found
			}
		}
		return nil
	}
	return walk(obj, []string{self.String()})
}

// sameSource tells whether both build from one source, so that they move through its revisions in order.
func sameSource(a, b *kustomizev1.Kustomization) bool {
	return a.Spec.SourceRef.Kind == b.Spec.SourceRef.Kind && a.Spec.SourceRef.Name == b.Spec.SourceRef.Name &&
		orOwn(a, a.Spec.SourceRef.Namespace) == orOwn(b, b.Spec.SourceRef.Namespace)
}

// allowed refuses a reference into another namespace where the installation forbids them.
func (k *Kustomization) allowed(obj *kustomizev1.Kustomization, field, namespace string) error {
	if !k.Options.NoCrossNamespaceRefs || namespace == obj.Namespace {
		return nil
	}
	return fault.New(meta.AccessDeniedReason,
		"%s refers to namespace '%s': cross-namespace references have been blocked", field, namespace).
		WithHint("Move the referenced object to namespace '%s', or ask whoever runs Sluice with "+
			"--no-cross-namespace-refs or --watch-all-namespaces=false", obj.Namespace).Final()
}
