// Package localset renders ResourceSets as their controller does, and says what an apply of the objects would change.
package localset

import (
	"context"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/offline/localbuild"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/resourceset"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// ErrNoInputs is the error of a ResourceSet whose providers have not exported inputs yet.
var ErrNoInputs = errors.New("its objects are not known")

// Render returns the objects of a ResourceSet. The inputs of its providers are read by the reader. Data and checksums
// of other objects are left out. Without a renderer, it starts a process for this ResourceSet.
func Render(ctx context.Context, renderer *render.Renderer, reader client.Reader, obj *controlplanev1.ResourceSet) (
	[]*unstructured.Unstructured, error) {
	providers, waiting, err := resourceset.Providers(ctx, reader, obj)
	if waiting != nil {
		return nil, errors.Join(ErrNoInputs, errors.New(waiting.String()))
	}
	if err != nil {
		return nil, err
	}
	if renderer == nil {
		renderer = render.New(render.Options{Children: 1})
		defer renderer.Close()
	}
	return resourceset.Render(ctx, renderer, obj, providers)
}

// NewTarget returns the cluster that applies as ResourceSets do: objects that another field manager applies would be
// changes.
func NewTarget(cfg *rest.Config) (*apply.Cluster, error) {
	return apply.NewCluster(cfg, apply.ClusterOptions{FieldManager: resourceset.FieldManager,
		OverrideManagers: []string{"helm"}})
}

// OwnerOf returns the owner of the objects of a ResourceSet.
func OwnerOf(obj *controlplanev1.ResourceSet) apply.Owner {
	return rollout.OwnerOf(reconcile.RefTo(resourceset.GroupKind, obj.Namespace, obj.Name))
}

// Request returns the request to apply the rendered objects of a ResourceSet. What annotations complete from other
// objects is as it is in the cluster: a change without a review must not read them.
func Request(ctx context.Context, target *apply.Cluster, obj *controlplanev1.ResourceSet,
	objects []*unstructured.Unstructured) (apply.Request, error) {
	for _, o := range objects {
		if !isCompleted(o) {
			continue
		}
		live, err := localbuild.LiveObject(ctx, target, o)
		if err != nil {
			return apply.Request{}, err
		}
		if live != nil {
			fill(o, live)
		}
	}
	return apply.Request{Owner: OwnerOf(obj), Objects: objects, Native: true,
		Previous: rollout.Inventory(obj.Status.Inventory),
		Force:    strings.EqualFold(obj.Annotations[controlplanev1.ForceAnnotation], controlplanev1.Enabled)}, nil
}

// completions are the annotations by which the controller completes objects.
var completions = []string{controlplanev1.CopyFromAnnotation, controlplanev1.ConvertKubeConfigFromAnnotation,
	controlplanev1.ChecksumFromAnnotation}

// isCompleted reports whether the controller completes an object from others.
func isCompleted(o *unstructured.Unstructured) bool {
	text, err := o.MarshalJSON()
	if err != nil {
		return false
	}
	for _, name := range completions {
		if strings.Contains(string(text), name) {
			return true
		}
	}
	return false
}

// fill takes what annotations complete from the object in the cluster.
func fill(o, live *unstructured.Unstructured) {
	annotations := o.GetAnnotations()
	for _, name := range completions[:2] {
		if _, ok := annotations[name]; !ok {
			continue
		}
		for _, field := range []string{"data", "binaryData", "type"} {
			if v, ok := live.Object[field]; ok {
				o.Object[field] = v
			}
		}
		delete(o.Object, "stringData")
	}
	fillChecksums(o.Object, live.Object)
}

// fillChecksums takes the checksums of annotations from the same places in the cluster.
func fillChecksums(v, live any) {
	switch v := v.(type) {
	case map[string]any:
		other, _ := live.(map[string]any)
		if _, ok := v[controlplanev1.ChecksumFromAnnotation]; ok && other[controlplanev1.ChecksumAnnotation] != nil {
			v[controlplanev1.ChecksumAnnotation] = other[controlplanev1.ChecksumAnnotation]
		}
		for key, x := range v {
			fillChecksums(x, other[key])
		}
	case []any:
		other, _ := live.([]any)
		for n := range min(len(v), len(other)) {
			fillChecksums(v[n], other[n])
		}
	}
}
