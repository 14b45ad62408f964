package ui

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/lineage"
)

// Bounds of a comparison of what an object applied with the cluster.
const (
	maxCompared      = 500 // objects
	compareRequests  = 8   // at a time
	maxForeignFields = 1000
)

// drift is what differs between git and the cluster, of all that an object applied.
type drift struct {
	Objects []drifted `json:"objects"` // that differ, or are not known
	Equal   int       `json:"equal"`
	Omitted int       `json:"omitted"` // objects that are not compared
}

// drifted is an object that differs.
type drifted struct {
	Group     string         `json:"group,omitempty"`
	Kind      string         `json:"kind"`
	Namespace string         `json:"namespace,omitempty"`
	Name      string         `json:"name"`
	Missing   bool           `json:"missing,omitempty"`
	Hidden    string         `json:"hidden,omitempty"` // why it is not compared
	Fields    []foreignField `json:"fields"`
}

// drift compares what an object applied with the cluster, with the rights of the user, by the managed fields of its
// objects.
func (s *Server) drift(ctx context.Context, u *User, r *http.Request) (any, error) {
	done, err := s.heavy.take(ctx, u.Name)
	if err != nil {
		return nil, err
	}
	defer done()
	_, o, err := get(ctx, u, r)
	if err != nil {
		return nil, err
	}
	if cluster := lineage.Cluster(o); cluster != lineage.ThisCluster {
		return nil, badRequest("its objects are in the cluster '%s', which this page cannot read", cluster)
	}
	refs := lineage.Made(o)
	d := &drift{Objects: []drifted{}, Omitted: max(0, len(refs)-maxCompared)}
	refs = refs[:len(refs)-d.Omitted]
	compared := make([]drifted, len(refs))
	group := guard.NewGroup("comparison with git")
	group.SetLimit(compareRequests)
	for i, ref := range refs {
		group.Go(func() error { compared[i] = compareLive(ctx, u, ref); return nil })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	left := maxForeignFields
	for _, c := range compared {
		if !c.Missing && c.Hidden == "" && len(c.Fields) == 0 {
			d.Equal++
			continue
		}
		c.Fields = c.Fields[:min(len(c.Fields), left)]
		left -= len(c.Fields)
		d.Objects = append(d.Objects, c)
	}
	return d, nil
}

// compareLive compares an object of an inventory with what the cluster has.
func compareLive(ctx context.Context, u *User, ref apply.Ref) drifted {
	c := drifted{Group: ref.Group, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, Fields: []foreignField{}}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: ref.Group, Version: ref.Version, Kind: ref.Kind})
	err := u.Client.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, o)
	switch {
	case apierrors.IsNotFound(err):
		c.Missing = true
		return c
	case apierrors.IsForbidden(err):
		c.Hidden = "you may not read this object"
		return c
	case err != nil:
		c.Hidden = excerpt.Bytes(explain(err), maxConditionRow)
		return c
	}
	managed := o.GetManagedFields()
	mask(o)
	fields, isDeclared := foreignFields(managed, o)
	if c.Fields = fields; !isDeclared {
		c.Hidden = "no controller of Sluice declares fields of it"
	}
	return c
}
