package ui

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/model/lineage"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
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
	// Git is the revision whose values are those of git, and GitError why they are not known.
	Git      string `json:"git,omitempty"`
	GitError string `json:"gitError,omitempty"`
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
	// File is the file of the source that declares it, and Page its page at the git host; only if one object was asked
	// for.
	File string `json:"file,omitempty"`
	Page string `json:"page,omitempty"`
}

// drift compares what an object applied with the cluster, with the rights of the user, by the managed fields of its
// objects, and adds what git declares. Parameters: group, kind, namespace and name of one object, for all without.
func (s *Server) drift(ctx context.Context, u *User, r *http.Request) (any, error) {
	_, o, err := get(ctx, u, r)
	if err != nil {
		return nil, err
	}
	if cluster := lineage.Cluster(o); cluster != lineage.ThisCluster {
		return nil, badRequest("its objects are in the cluster '%s', which this page cannot read", cluster)
	}
	refs := chosen(lineage.Made(o), r.URL.Query())
	d := &drift{Objects: []drifted{}, Omitted: max(0, len(refs)-maxCompared)}
	refs = refs[:len(refs)-d.Omitted]
	git, err := s.declaredBy(ctx, u, o)
	if err != nil {
		git, d.GitError = nil, excerpt.Bytes(explain(err), maxConditionRow)
	} else {
		d.Git = git.revision
	}
	compared := make([]drifted, len(refs))
	group := guard.NewGroup("comparison with git")
	group.SetLimit(compareRequests)
	for i, ref := range refs {
		group.Go(func() error { compared[i] = compareLive(ctx, u, ref, git); return nil })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if len(refs) == 1 && r.URL.Query().Get("name") != "" {
		compared[0].File, compared[0].Page = git.fileOf(refs[0])
	}
	left := maxForeignFields
	for _, c := range compared {
		if !c.Missing && c.Hidden == "" && c.File == "" && len(c.Fields) == 0 {
			d.Equal++
			continue
		}
		c.Fields = c.Fields[:min(len(c.Fields), left)]
		left -= len(c.Fields)
		d.Objects = append(d.Objects, c)
	}
	return d, nil
}

// chosen returns the one object that a request names, or all.
func chosen(refs []apply.Ref, q url.Values) []apply.Ref {
	if q.Get("name") == "" {
		return refs
	}
	return slices.DeleteFunc(slices.Clone(refs), func(r apply.Ref) bool {
		return r.Group != q.Get("group") || r.Kind != q.Get("kind") || r.Namespace != q.Get("namespace") ||
			r.Name != q.Get("name")
	})
}

// compareLive compares an object of an inventory with what the cluster has, and with what git declares, if it is known.
func compareLive(ctx context.Context, u *User, ref apply.Ref, git *declared) drifted {
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
	if !isDeclared {
		c.Hidden = "no controller of Sluice declares fields of it"
		return c
	}
	c.Fields = git.addGit(fields, ref, o)
	return c
}
