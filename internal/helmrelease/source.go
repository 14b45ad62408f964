package helmrelease

import (
	"cmp"
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

var sourceGroup = sourcev1.GroupVersion.Group

// sourceKey returns the kind and the name of the source object of the chart.
func sourceKey(obj *helmv2.HelmRelease) (kind string, key types.NamespacedName) {
	if ref := obj.Spec.ChartRef; ref != nil {
		return ref.Kind, types.NamespacedName{Namespace: cmp.Or(ref.Namespace, obj.Namespace), Name: ref.Name}
	}
	if obj.Spec.Chart == nil {
		return "", key
	}
	return obj.Spec.Chart.GetKind(), templateKey(obj)
}

// progressOf returns a pseudo kind for the edges of HelmReleases, which also depend on the observed generation and the
// readiness of their source: a new template may lead to the same artifact.
func progressOf(kind string) schema.GroupKind {
	return schema.GroupKind{Group: sourceGroup, Kind: kind + "/progress"}
}

func sourceRefs(obj *helmv2.HelmRelease) []reconcile.Ref {
	kind, key := sourceKey(obj)
	return []reconcile.Ref{
		reconcile.RefTo(schema.GroupKind{Group: sourceGroup, Kind: kind}, key.Namespace, key.Name),
		reconcile.RefTo(progressOf(kind), key.Namespace, key.Name),
	}
}

// Observe enqueues HelmReleases when their dependencies or the progress of their sources change.
func (c *Controller) Observe(ctx context.Context, cache cache.Cache) error {
	if err := observeProgress(ctx, c.Clusters.Edges, cache, &sourcev1.HelmChart{}, sourcev1.HelmChartKind); err != nil {
		return err
	}
	if err := observeProgress(ctx, c.Clusters.Edges, cache, &sourcev1.OCIRepository{},
		sourcev1.OCIRepositoryKind); err != nil {
		return err
	}
	return c.dependencies().Observe(ctx, c.Clusters.Edges, cache, func(before, after *helmv2.HelmRelease) bool {
		return before.Status.LastAttemptedRevision != after.Status.LastAttemptedRevision
	})
}

func observeProgress[T sourcev1.Source](ctx context.Context, e *reconcile.Edges, c cache.Cache, obj T,
	kind string) error {
	return reconcile.Observe(ctx, e, c, progressOf(kind), obj, func(before, after T) bool {
		return before.CommonStatus().ObservedGeneration != after.CommonStatus().ObservedGeneration ||
			readyMessage(before) != readyMessage(after)
	})
}

// readyMessage returns the message of a source that is not Ready.
func readyMessage(s sourcev1.Source) string {
	ready := apimeta.FindStatusCondition(s.CommonStatus().Conditions, reconcile.TypeReady)
	if ready == nil || ready.Status != "False" {
		return ""
	}
	return ready.Message
}

// source returns the object with the chart and its artifact, or the outcome if there is none yet.
func (c *Controller) source(ctx context.Context, obj *helmv2.HelmRelease) (sourcev1.Source, *reconcile.Outcome) {
	kind, key := sourceKey(obj)
	field := "spec.chartRef"
	if obj.Spec.Chart != nil {
		field = "spec.chart.spec.sourceRef"
	}
	if err := c.referencePolicy().Check(field, obj.Namespace, key.Namespace); err != nil {
		return nil, ptr.To(reconcile.Failed(err))
	}
	source := sourcev1.NewSource(kind)
	if source == nil {
		return nil, ptr.To(reconcile.Failed(fault.New(meta.ArtifactFailedReason, "%s.kind '%s' is not supported", field,
			kind).WithHint("Use an OCIRepository, HelmChart or ExternalArtifact").Final()))
	}
	if err := c.ensureTemplate(ctx, obj); err != nil {
		return nil, ptr.To(reconcile.Failed(err))
	}
	err := c.Client.Get(ctx, key, source.(client.Object))
	isTemplate := obj.Spec.Chart != nil
	switch {
	case apierrors.IsNotFound(err) && isTemplate: // just created, and not in the cache yet
		return nil, fetching(kind, key)
	case apierrors.IsNotFound(err):
		return nil, waitFor("%s '%s' not found. Create it, or correct %s", kind, key, field)
	case err != nil:
		return nil, ptr.To(reconcile.Failed(fault.New(meta.ArtifactFailedReason, "cannot read %s '%s'", kind, key).
			Because(err)))
	case isTemplate && (source.CommonStatus().ObservedGeneration != source.GetGeneration() ||
		!isCurrent(newTemplate(obj), source.(client.Object))):
		if message := readyMessage(source); message != "" {
			return nil, waitFor("%s '%s' is not ready: %s", kind, key, message)
		}
		return nil, fetching(kind, key)
	case source.GetArtifact() == nil:
		if message := readyMessage(source); message != "" {
			return nil, waitFor("%s '%s' is not ready: %s", kind, key, message)
		}
		if isTemplate {
			return nil, fetching(kind, key)
		}
		return nil, waitFor("%s '%s' has no artifact yet. See its conditions", kind, key)
	}
	return source, nil
}

// fetchReview is when a HelmRelease looks again at a source object that fetches its chart; changes of it are edges.
const fetchReview = time.Minute

// fetching returns the outcome while a source object, which was created for the HelmRelease, fetches the chart.
func fetching(kind string, key types.NamespacedName) *reconcile.Outcome {
	return ptr.To(reconcile.Progressing(fetchReview, "%s '%s' is fetching the chart", kind, key))
}

func waitFor(format string, args ...any) *reconcile.Outcome {
	return ptr.To(reconcile.Waiting(meta.ArtifactFailedReason, format, args...))
}
