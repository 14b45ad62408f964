package localbuild

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// ApplyRequest returns the apply that the controller would run for a build. live is the Kustomization in the cluster,
// with an empty status if there is none.
func (r *Result) ApplyRequest(ctx context.Context, target *apply.Cluster, live *kustomizev1.Kustomization) (
	apply.Request, error) {
	obj := r.Kustomization
	req := apply.Request{Owner: OwnerOf(obj), Objects: r.Objects, Origin: r.Origin, Locate: r.Locate, Native: true,
		Force: obj.Spec.Force, Secrets: r.Secrets}
	var err error
	if req.Ignore, err = rollout.IgnoreRules(obj.Spec.Ignore, obj.Spec.DriftDetection); err != nil {
		return req, err
	}
	if obj.Spec.Prune {
		req.Previous = rollout.Inventory(live.Status.Inventory)
	}
	if obj.Spec.Decryption != nil {
		adoptHashes(r.Objects, rollout.Inventory(live.Status.Inventory))
		return req, r.unmask(ctx, target)
	}
	return req, nil
}

// unmask replaces values that SOPS encrypted by those in the cluster, if only the controller can decrypt them.
func (r *Result) unmask(ctx context.Context, target *apply.Cluster) error {
	for _, o := range r.Objects {
		if !HasMasked(o.Object) {
			continue
		}
		gvk := o.GroupVersionKind()
		mapping, err := target.Mapper().RESTMapping(schema.GroupKind{Group: gvk.Group, Kind: gvk.Kind}, gvk.Version)
		if err != nil {
			continue // its CustomResourceDefinition is not installed yet
		}
		namespace := o.GetNamespace()
		if mapping.Scope.Name() == apimeta.RESTScopeNameNamespace && namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		live, err := target.Dynamic().Resource(mapping.Resource).Namespace(namespace).
			Get(ctx, o.GetName(), metav1.GetOptions{})
		if client.IgnoreNotFound(err) != nil {
			return cluster.Explain(fmt.Sprintf("cannot get %s '%s/%s'", o.GetKind(), namespace, o.GetName()), err)
		}
		if err == nil {
			Unmask(o, live)
		}
	}
	return nil
}
