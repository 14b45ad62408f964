package kustomization

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/lru"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	maxDeclared   = 16 << 20 // bytes of the references that all builds of successors declare, while they are cached
	declaredBytes = 256      // memory of one of them
)

var helmReleases = schema.GroupKind{Group: helmv2.GroupVersion.Group, Kind: helmv2.HelmReleaseKind}

// handover is a set of objects that other Kustomizations are about to adopt.
type handover struct {
	objects apply.Inventory
	to      []string // the Kustomizations
	// left are objects of HelmReleases. Helm does not look at labels when it deletes them, so they need not be adopted.
	left apply.Inventory
}

// handover returns which stale objects of a Kustomization other Kustomizations declare, so that they must not be
// deleted, which would cause an outage: objects that others have applied as well, and objects that others of the
// namespace declare at the same revision of the source but have not applied yet. The Kustomization is enqueued when one
// of the others changes. source is nil without an artifact. An error means that it is not known what others declare.
func (c *Controller) handover(ctx context.Context, obj *kustomizev1.Kustomization, target *rollout.Target,
	source *meta.Artifact, stale apply.Inventory) (handover, error) {
	h, err := c.shared(ctx, obj, target, stale)
	if err != nil || source == nil {
		return h, err
	}
	successors, err := c.successors(ctx, obj, source)
	if err != nil {
		return h, fault.New(meta.PruneFailedReason, "objects are not deleted yet: cannot list the Kustomizations that "+
			"may adopt them").Because(err)
	}
	for _, s := range successors {
		rest := stale.Without(h.objects).Without(h.left)
		if len(rest) == 0 {
			break
		}
		c.Clusters.Edges.Add(refOf(obj), refOf(s))
		declared, err := c.declaredBy(ctx, s, source)
		if err != nil {
			return h, fault.New(meta.PruneFailedReason, "objects are not deleted yet: cannot build Kustomization "+
				"'%s', which may adopt them", s.Name).Because(err)
		}
		before := len(h.objects)
		for _, e := range rest {
			if slices.ContainsFunc(declared, func(d apply.Ref) bool { return isSameObject(e, d) }) {
				h.objects = append(h.objects, e)
			}
		}
		if len(h.objects) > before {
			h.to = append(h.to, s.Name)
		}
	}
	return h, nil
}

// shared returns the stale objects with the labels of a Kustomization that other Kustomizations have applied as well.
// The others overwrite the labels when they next apply. Objects that HelmReleases have applied are left to them.
func (c *Controller) shared(ctx context.Context, obj *kustomizev1.Kustomization, target *rollout.Target,
	stale apply.Inventory) (handover, error) {
	var h handover
	h.left, _ = c.Clusters.Claims.Others(refOf(obj), helmReleases, target, stale)
	objects, others := c.Clusters.Claims.Others(refOf(obj), GroupKind, target, stale)
	if len(objects) == 0 {
		return h, nil
	}
	var err error
	if h.objects, err = target.Cluster.Owned(ctx, rollout.OwnerOf(refOf(obj)), objects); err != nil ||
		len(h.objects) == 0 {
		return h, err
	}
	for _, o := range others {
		c.Clusters.Edges.Add(refOf(obj), o)
		if name := o.Name; o.Namespace == obj.Namespace {
			h.to = append(h.to, name)
		} else {
			h.to = append(h.to, o.Namespace+"/"+name)
		}
	}
	return h, nil
}

// successors returns the Kustomizations that have not applied the revision yet and for which it changes the build.
func (c *Controller) successors(ctx context.Context, obj *kustomizev1.Kustomization,
	source *meta.Artifact) ([]*kustomizev1.Kustomization, error) {
	var list kustomizev1.KustomizationList
	if err := c.Client.List(ctx, &list, client.InNamespace(obj.Namespace)); err != nil {
		return nil, err
	}
	var successors []*kustomizev1.Kustomization
	for n := range list.Items {
		k := &list.Items[n]
		pending := k.UID != obj.UID && k.DeletionTimestamp == nil && !k.Spec.Suspend &&
			k.Status.LastAppliedRevision != source.Revision
		if pending && haveSameSource(k, obj) && meta.Equal(k.Spec.KubeConfig, obj.Spec.KubeConfig) &&
			!c.isUnaffected(ctx, k, source) {
			successors = append(successors, k)
		}
	}
	return successors, nil
}

// declaration identifies what a Kustomization builds from a tree.
type declaration struct {
	uid        types.UID
	generation int64
	inputs     string
	source     string
}

// declaredBy returns the objects that a Kustomization builds from the source; none if it cannot build them. An error
// means that a later attempt may succeed. Results are cached: when many Kustomizations prune objects after a commit,
// they ask for the same ones.
func (c *Controller) declaredBy(ctx context.Context, obj *kustomizev1.Kustomization,
	source *meta.Artifact) ([]apply.Ref, error) {
	in, err := c.inputsOf(ctx, obj)
	if err != nil {
		return nil, temporary(ctx, err)
	}
	key := declaration{uid: obj.UID, generation: obj.Generation, inputs: in.digest, source: source.Digest}
	if declared, ok := c.declared.Get(key); ok {
		return declared, nil
	}
	tree, err := c.fetch(ctx, obj, source)
	if err != nil {
		return nil, temporary(ctx, err)
	}
	built, err := c.buildTree(ctx, obj, source.Revision, tree, in)
	if err != nil {
		return nil, temporary(ctx, err)
	}
	declared := make([]apply.Ref, 0, len(built.Objects))
	for _, o := range built.Objects {
		declared = append(declared, apply.RefOf(o))
	}
	c.declared.Add(key, declared, int64(1+len(declared))*declaredBytes, lru.Limits{Size: maxDeclared})
	return declared, nil
}

// temporary returns an error that another attempt may not have; nil for other errors.
func temporary(ctx context.Context, err error) error {
	if ctx.Err() != nil || guard.IsWaitingForMemory(err) {
		return err
	}
	return nil
}

// isSameObject reports whether an inventory entry is the entry of a declared object, which may omit its namespace.
func isSameObject(e apply.Entry, o apply.Ref) bool {
	ref, err := e.Ref()
	if err != nil || ref.Group != o.Group || ref.Kind != o.Kind || ref.Name != o.Name {
		return false
	}
	return ref.Namespace == o.Namespace || ref.Namespace == "" || o.Namespace == ""
}

var _ reconcile.Step[*kustomizev1.Kustomization] = &Controller{}
