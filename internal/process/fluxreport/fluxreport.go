// Package fluxreport writes the FluxReport, in which clients of Flux Operator read what runs in a cluster. It is
// written if the cluster has the kind, which Flux Operator defines, and Flux Operator does not run.
package fluxreport

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// +kubebuilder:rbac:groups=fluxcd.controlplane.io,resources=fluxreports,verbs=create;patch
// +kubebuilder:rbac:groups=fluxcd.controlplane.io,resources=fluxreports/status,verbs=patch

// kind is the kind of the report, of which a cluster has one object.
var kind = schema.GroupVersionKind{Group: "fluxcd.controlplane.io", Version: "v1", Kind: "FluxReport"}

const (
	name    = "flux"
	manager = "sluice"
	every   = 5 * time.Minute
	timeout = time.Minute
)

// Reporter writes the report of the objects that this process reconciles.
type Reporter struct {
	Client    client.Client // its reads are of the cache
	Live      client.Reader // not cached
	Kinds     func() []schema.GroupVersionKind
	Server    func() (*version.Info, error)
	Namespace string                       // of the controllers
	Version   string                       // of Sluice
	LeftTo    func(context.Context) string // the other controller that writes the report; empty for none
	Clock     clock.WithTicker
}

// Start implements [manager.Runnable]. Only the leader writes the report.
func (r *Reporter) Start(ctx context.Context) error {
	ticker := r.Clock.NewTicker(every)
	defer ticker.Stop()
	for {
		if err := r.Write(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "cannot write the FluxReport")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// Write writes the report now.
func (r *Reporter) Write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := r.Client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version); err != nil {
		if apimeta.IsNoMatchError(err) {
			return nil // the clients that read it are not used here
		}
		return err
	}
	if r.LeftTo(ctx) != "" {
		return nil
	}
	started := r.Clock.Now()
	spec, err := r.spec(ctx)
	if err != nil {
		return err
	}
	report := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	report.SetGroupVersionKind(kind)
	report.SetNamespace(r.Namespace)
	report.SetName(name)
	err = r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(report), client.FieldOwner(manager),
		client.ForceOwnership)
	if apierrors.IsNotFound(err) {
		return nil // the kind was removed
	}
	if err != nil {
		return err
	}
	status, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []metav1.Condition{{
		Type: reconcile.TypeReady, Status: metav1.ConditionTrue, Reason: meta.ReconciliationSucceededReason,
		Message:            fmt.Sprintf("Reporting finished in %s", r.Clock.Since(started).Round(time.Millisecond)),
		LastTransitionTime: metav1.NewTime(r.Clock.Now()), ObservedGeneration: report.GetGeneration()}}}})
	if err != nil {
		return err
	}
	return r.Client.Status().Patch(ctx, report, client.RawPatch(types.MergePatchType, status))
}

// spec returns what the report says.
func (r *Reporter) spec(ctx context.Context) (map[string]any, error) {
	server, err := r.Server()
	if err != nil {
		return nil, err
	}
	deployments := &appsv1.DeploymentList{}
	if err := r.Live.List(ctx, deployments, client.InNamespace(r.Namespace),
		client.MatchingLabels{"app.kubernetes.io/name": manager}); client.IgnoreNotFound(err) != nil &&
		!apierrors.IsForbidden(err) {
		return nil, err
	}
	spec := map[string]any{
		"distribution": map[string]any{"entitlement": "not required", "managedBy": manager, "status": "Installed",
			"version": r.Version},
		"operator": map[string]any{"apiVersion": kind.GroupVersion().String(), "version": r.Version,
			"platform": runtime.GOOS + "/" + runtime.GOARCH},
		"cluster": map[string]any{"serverVersion": server.GitVersion, "platform": server.Platform},
	}
	if all := components(deployments.Items); len(all) > 0 {
		spec["components"] = all
	}
	var reconcilers []any
	for _, gvk := range r.Kinds() {
		objects, err := r.list(ctx, gvk)
		if err != nil {
			return nil, err
		}
		reconcilers = append(reconcilers, reconciler(gvk, objects))
		if gvk.Kind == kustomizev1.KustomizationKind {
			if sync := r.sync(ctx, objects); sync != nil {
				spec["sync"] = sync
			}
		}
	}
	spec["reconcilers"] = reconcilers
	return spec, nil
}

// list returns the objects of a kind, from the cache.
func (r *Reporter) list(ctx context.Context, gvk schema.GroupVersionKind) ([]reconcile.Object, error) {
	created, err := r.Client.Scheme().New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return nil, err
	}
	list, ok := created.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%T is not a list", created)
	}
	if err := r.Client.List(ctx, list); err != nil {
		return nil, err
	}
	var objects []reconcile.Object
	err = apimeta.EachListItem(list, func(o kruntime.Object) error {
		if obj, ok := o.(reconcile.Object); ok {
			objects = append(objects, obj)
		}
		return nil
	})
	return objects, err
}

// components returns the Deployments of Sluice.
func components(deployments []appsv1.Deployment) []any {
	slices.SortFunc(deployments, func(a, b appsv1.Deployment) int { return cmp.Compare(a.Name, b.Name) })
	var all []any
	for _, d := range deployments {
		image := ""
		if containers := d.Spec.Template.Spec.Containers; len(containers) > 0 {
			image = containers[0].Image
		}
		wanted := ptr.Deref(d.Spec.Replicas, 1)
		all = append(all, map[string]any{"name": d.Name, "image": image,
			"ready":  d.Status.ObservedGeneration >= d.Generation && d.Status.AvailableReplicas >= wanted,
			"status": fmt.Sprintf("%d of %d replicas are available", d.Status.AvailableReplicas, wanted)})
	}
	return all
}

// reconciler counts the objects of a kind as `sluice stats` does.
func reconciler(gvk schema.GroupVersionKind, objects []reconcile.Object) map[string]any {
	var running, failing, suspended, size int64
	for _, o := range objects {
		c := apimeta.FindStatusCondition(o.CommonStatus().Conditions, reconcile.TypeReady)
		switch {
		case o.Schedule().Suspended:
			suspended++
		case c != nil && c.Status == metav1.ConditionFalse:
			failing++
		default:
			running++
		}
		if s, ok := o.(sourcev1.Source); ok && s.GetArtifact() != nil {
			size += ptr.Deref(s.GetArtifact().Size, 0)
		}
	}
	stats := map[string]any{"running": running, "failing": failing, "suspended": suspended}
	if size > 0 {
		stats["totalSize"] = fmt.Sprintf("%.1f MiB", float64(size)/(1<<20))
	}
	return map[string]any{"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind, "stats": stats}
}

// sync returns the state of the Kustomization that has the name of the namespace, as bootstrap creates it; nil if there
// is none.
func (r *Reporter) sync(ctx context.Context, objects []reconcile.Object) map[string]any {
	for _, o := range objects {
		k, ok := o.(*kustomizev1.Kustomization)
		if !ok || k.Namespace != r.Namespace || k.Name != r.Namespace {
			continue
		}
		sync := map[string]any{"id": "kustomization/" + k.Name, "path": k.Spec.Path, "ready": reconcile.IsReady(k),
			"status": ""}
		if c := apimeta.FindStatusCondition(k.Status.Conditions, reconcile.TypeReady); c != nil {
			sync["status"] = c.Message
		}
		source := &sourcev1.GitRepository{}
		if k.Spec.SourceRef.Kind == sourcev1.GitRepositoryKind && r.Client.Get(ctx, client.ObjectKey{
			Namespace: cmp.Or(k.Spec.SourceRef.Namespace, k.Namespace), Name: k.Spec.SourceRef.Name}, source) == nil {
			sync["source"] = source.Spec.URL
		}
		return sync
	}
	return nil
}
