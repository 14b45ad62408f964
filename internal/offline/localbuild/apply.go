package localbuild

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/offline/lookup"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// ApplyRequest returns the apply that the controller would run for a build. live is the Kustomization in the cluster,
// with an empty status if there is none. before is the build without the change, for a build with placeholders; it may
// be nil.
func (r *Result) ApplyRequest(ctx context.Context, target *apply.Cluster, live *kustomizev1.Kustomization,
	before *Result) (apply.Request, error) {
	obj := r.Kustomization
	req := apply.Request{Owner: OwnerOf(obj), Objects: r.Objects, Origin: r.Origin, Locate: r.Locate, Native: true,
		Force: obj.Spec.Force, Veil: r.Veil}
	var err error
	if req.Ignore, err = rollout.IgnoreRules(obj.Spec.Ignore, obj.Spec.DriftDetection); err != nil {
		return req, err
	}
	if obj.Spec.Prune {
		req.Previous = rollout.Inventory(live.Status.Inventory)
	}
	switch {
	case r.twin != nil:
		l := Live{Target: target, Known: r.Known(), Before: before.objects(), MayChange: before != nil}
		req.Objects, r.live, err = l.Fill(ctx, r.Objects)
		known := before.Known()
		if known == nil && before != nil && !r.Veil.IsOpen() {
			known = redact.Compare(before.Objects, before.Objects) // nothing of it comes from secrets
		}
		r.Veil.After(known, r.Objects)
	case obj.Spec.Decryption != nil:
		adoptHashes(r.Objects, rollout.Inventory(live.Status.Inventory))
		err = r.unmask(ctx, target)
	}
	return req, err
}

func (r *Result) objects() []*unstructured.Unstructured {
	if r == nil {
		return nil
	}
	return r.Objects
}

// LiveSecrets returns values of the cluster that the last [Result.ApplyRequest] used in place of placeholders. Messages
// must not contain them.
func (r *Result) LiveSecrets() []string { return r.live }

// unmask replaces values that SOPS encrypted by those in the cluster, if only the controller can decrypt them.
func (r *Result) unmask(ctx context.Context, target *apply.Cluster) error {
	for _, o := range r.Objects {
		if !HasMasked(o.Object) {
			continue
		}
		live, err := LiveObject(ctx, target, o)
		if err != nil {
			return err
		}
		if live != nil {
			Unmask(o, live)
		}
		satisfyType(o)
	}
	return nil
}

// LiveObject returns an object of the cluster; nil if it does not exist.
func LiveObject(ctx context.Context, target *apply.Cluster, o *unstructured.Unstructured) (*unstructured.Unstructured,
	error) {
	gvk := o.GroupVersionKind()
	mapping, err := target.Mapper().RESTMapping(schema.GroupKind{Group: gvk.Group, Kind: gvk.Kind}, gvk.Version)
	if err != nil {
		return nil, nil //nolint:nilerr // its CustomResourceDefinition is not installed yet
	}
	namespace := o.GetNamespace()
	if mapping.Scope.Name() == apimeta.RESTScopeNameNamespace && namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	live, err := target.Dynamic().Resource(mapping.Resource).Namespace(namespace).
		Get(ctx, o.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, lookup.Explain(fmt.Sprintf("cannot get %s '%s/%s'", o.GetKind(), namespace, o.GetName()), err)
	}
	return live, nil
}
