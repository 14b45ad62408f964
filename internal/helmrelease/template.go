package helmrelease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// chartMediaType is the media type of the layer with the chart in an OCI artifact that Helm pushed.
const chartMediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

// templateKey returns the name of the source object that is created for a HelmRelease.
func templateKey(obj *helmv2.HelmRelease) types.NamespacedName {
	key := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Namespace + "-" + obj.Name}
	if ref := obj.Spec.Chart.Spec.SourceRef; ref != nil {
		key.Namespace = cmp.Or(ref.Namespace, obj.Namespace)
	}
	return key
}

// templateStatus returns the value of status.helmChart for a source object.
func templateStatus(kind string, key types.NamespacedName) string {
	if kind == sourcev1.HelmChartKind {
		return key.String()
	}
	return kind + "/" + key.String()
}

// parseTemplateStatus is the inverse of templateStatus.
func parseTemplateStatus(text string) (kind string, key types.NamespacedName, ok bool) {
	parts := strings.Split(text, "/")
	switch len(parts) {
	case 2:
		return sourcev1.HelmChartKind, types.NamespacedName{Namespace: parts[0], Name: parts[1]}, true
	case 3:
		return parts[0], types.NamespacedName{Namespace: parts[1], Name: parts[2]}, true
	default:
		return "", types.NamespacedName{}, false
	}
}

// ensureTemplate creates or updates the source object of spec.chart, and deletes the one of an earlier spec.
func (c *Controller) ensureTemplate(ctx context.Context, obj *helmv2.HelmRelease) error {
	wanted := ""
	if t := obj.Spec.Chart; t != nil {
		wanted = templateStatus(t.GetKind(), templateKey(obj))
	}
	if wanted != obj.Status.HelmChart {
		if err := c.deleteTemplate(ctx, obj); err != nil {
			return err
		}
	}
	if wanted == "" {
		return nil
	}
	obj.Status.HelmChart = wanted
	reader := client.Reader(c.Client)
	err := retry.OnError(retry.DefaultRetry, isOutdated, func() error {
		err := c.writeTemplate(ctx, reader, obj)
		reader = c.Live // what the cache has may be outdated
		return err
	})
	var refused *fault.Fault
	if err != nil && !errors.As(err, &refused) {
		return fault.New(meta.ArtifactFailedReason, "cannot write the source object %s", wanted).Because(err)
	}
	return err
}

// isOutdated reports whether a write failed because the object was not as it was read.
func isOutdated(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// writeTemplate makes the source object in the cluster as spec.chart declares it.
func (c *Controller) writeTemplate(ctx context.Context, reader client.Reader, obj *helmv2.HelmRelease) error {
	wanted := newTemplate(obj)
	live := sourcev1.NewSource(obj.Spec.Chart.GetKind()).(client.Object)
	err := reader.Get(ctx, templateKey(obj), live)
	switch {
	case apierrors.IsNotFound(err):
		return c.announce(obj, "Created", c.Client.Create(ctx, wanted))
	case err != nil:
		return err
	case isCurrent(wanted, live):
		return nil
	}
	if err := c.checkTemplateOwner(ctx, obj, live); err != nil {
		return err
	}
	wanted.SetResourceVersion(live.GetResourceVersion())
	wanted.SetFinalizers(live.GetFinalizers())
	return c.announce(obj, "Configured", c.Client.Update(ctx, wanted))
}

// announce emits an event about the source object that status.helmChart names, unless the write failed. Reasons and
// messages are those of Flux, such as HelmChartCreated. Like there, Alerts do not get it.
func (c *Controller) announce(obj *helmv2.HelmRelease, action string, err error) error {
	kind, key, ok := parseTemplateStatus(obj.Status.HelmChart)
	if !ok || err != nil {
		return err
	}
	message := fmt.Sprintf("%s %s/%s/%s", action, kind, key.Namespace, key.Name)
	switch ref := obj.Spec.Chart; {
	case action == "Deleted":
		message = fmt.Sprintf("deleted %s '%s'", kind, key)
	case ref.Spec.SourceRef != nil:
		message += fmt.Sprintf(" with SourceRef '%s/%s/%s'", ref.Spec.SourceRef.Kind, key.Namespace,
			ref.Spec.SourceRef.Name)
	}
	c.Events.Emit(GroupKind.Group, obj, reconcile.Event{Type: corev1.EventTypeNormal, Reason: kind + action,
		Message: message, ClusterOnly: true})
	return nil
}

// checkTemplateOwner returns an error if a source object belongs to another HelmRelease: namespace 'a' with name 'b-c'
// and namespace 'a-b' with name 'c' give the same name.
func (c *Controller) checkTemplateOwner(ctx context.Context, obj *helmv2.HelmRelease, live client.Object) error {
	labels := live.GetLabels()
	other := types.NamespacedName{Namespace: labels[GroupKind.Group+"/namespace"],
		Name: labels[GroupKind.Group+"/name"]}
	if other.Name == "" || other == client.ObjectKeyFromObject(obj) {
		return nil
	}
	if err := c.Client.Get(ctx, other, &helmv2.HelmRelease{}); err != nil {
		return client.IgnoreNotFound(err)
	}
	return fault.New(meta.ArtifactFailedReason, "source object '%s' belongs to HelmRelease '%s'", templateKey(obj),
		other).WithHint("Rename one of the two HelmReleases: namespace and name of both make the same name").Final()
}

// newTemplate returns the source object of spec.chart.
func newTemplate(obj *helmv2.HelmRelease) client.Object {
	t, key := obj.Spec.Chart, templateKey(obj)
	head := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name,
		Labels: maps.Clone(rollout.OwnerOf(refOf(obj)).Labels())}
	if t.ObjectMeta != nil {
		maps.Copy(head.Labels, t.ObjectMeta.Labels)
		head.Annotations = maps.Clone(t.ObjectMeta.Annotations)
	}
	maps.Copy(head.Labels, rollout.OwnerOf(refOf(obj)).Labels())
	interval := obj.Spec.Interval
	if t.Spec.Interval != nil {
		interval = *t.Spec.Interval
	}
	if t.GetKind() == sourcev1.OCIRepositoryKind {
		return newOCITemplate(t.Spec, head, interval)
	}
	chart := &sourcev1.HelmChart{ObjectMeta: head, Spec: sourcev1.HelmChartSpec{
		Chart: t.Spec.Chart, Version: cmp.Or(t.Spec.Version, "*"), Interval: interval,
		ReconcileStrategy: cmp.Or(t.Spec.ReconcileStrategy, sourcev1.ReconcileStrategyChartVersion),
		ValuesFiles:       t.Spec.ValuesFiles, ValuesFile: t.Spec.ValuesFile,
		IgnoreMissingValuesFiles: t.Spec.IgnoreMissingValuesFiles, Verify: t.Spec.Verify,
	}}
	if ref := t.Spec.SourceRef; ref != nil {
		chart.Spec.SourceRef = sourcev1.LocalHelmChartSourceReference{APIVersion: ref.APIVersion, Kind: ref.Kind,
			Name: ref.Name}
	}
	return chart
}

func newOCITemplate(spec helmv2.HelmChartTemplateSpec, head metav1.ObjectMeta, interval meta.Duration) client.Object {
	layer, timeout := spec.LayerSelector, spec.Timeout
	if layer == nil {
		layer = &sourcev1.OCILayerSelector{MediaType: chartMediaType, Operation: sourcev1.LayerCopy}
	}
	if timeout == nil {
		timeout = &meta.Duration{Duration: time.Minute} // the default of the API server, so that updates are seen
	}
	return &sourcev1.OCIRepository{ObjectMeta: head, Spec: sourcev1.OCIRepositorySpec{
		URL: spec.URL, Reference: spec.Reference, LayerSelector: layer, Interval: interval, Timeout: timeout,
		Provider: cmp.Or(spec.Provider, sourcev1.ProviderGeneric), SecretRef: spec.SecretRef, Verify: spec.Verify,
		ServiceAccountName: spec.ServiceAccountName, CertSecretRef: spec.CertSecretRef,
		ProxySecretRef: spec.ProxySecretRef, Ignore: spec.Ignore, Insecure: spec.Insecure, Suspend: spec.Suspend,
	}}
}

// isCurrent reports whether a live source object has the spec and the metadata of the wanted one. Labels and
// annotations of others are added to the wanted object, so that an update keeps them.
func isCurrent(wanted, live client.Object) bool {
	labels, annotations := maps.Clone(live.GetLabels()), maps.Clone(live.GetAnnotations())
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(labels, wanted.GetLabels())
	maps.Copy(annotations, wanted.GetAnnotations())
	wanted.SetLabels(labels)
	wanted.SetAnnotations(annotations)
	return meta.Equal(specOf(wanted), specOf(live)) && maps.Equal(labels, live.GetLabels()) &&
		(len(annotations) == 0 || maps.Equal(annotations, live.GetAnnotations()))
}

func specOf(source client.Object) any {
	switch s := source.(type) {
	case *sourcev1.HelmChart:
		return s.Spec
	case *sourcev1.OCIRepository:
		return s.Spec
	default:
		return nil
	}
}

// deleteTemplate deletes the source object that status.helmChart names, if it was created for the HelmRelease.
func (c *Controller) deleteTemplate(ctx context.Context, obj *helmv2.HelmRelease) error {
	kind, key, ok := parseTemplateStatus(obj.Status.HelmChart)
	source, isObject := sourcev1.NewSource(kind).(client.Object)
	if !ok || !isObject {
		obj.Status.HelmChart = ""
		return nil
	}
	err := c.Client.Get(ctx, key, source)
	if err == nil {
		labels := source.GetLabels()
		for k, v := range rollout.OwnerOf(refOf(obj)).Labels() {
			if labels[k] != v {
				obj.Status.HelmChart = ""
				return nil // another object of that name
			}
		}
		err = c.announce(obj, "Deleted", c.Client.Delete(ctx, source))
	}
	if client.IgnoreNotFound(err) != nil {
		return fault.New(meta.ArtifactFailedReason, "cannot delete the source object %s, which is no longer used",
			obj.Status.HelmChart).Because(err)
	}
	obj.Status.HelmChart = ""
	return nil
}
