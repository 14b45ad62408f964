package view

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-gitops/sluice/internal/model/lineage"
	"github.com/sluice-gitops/sluice/internal/network/hostguard"
)

// maxRevisions of a cluster that are listed.
const maxRevisions = 20

// Cluster is what is known about a cluster from the objects that deploy to it.
type Cluster struct {
	Name      string   `json:"name"` // of its credentials, or "this cluster"
	Objects   int      `json:"objects"`
	Counts    Counts   `json:"counts"`
	Revisions []string `json:"revisions"`         // that are applied, sorted; the first of them
	Different int      `json:"different"`         // revisions that are applied
	Problem   *Item    `json:"problem,omitempty"` // an object in the worst state, nil if all are Ready
	// Unreachable is an object whose requests the cluster did not answer.
	Unreachable *Item `json:"unreachable,omitempty"`
}

// Clusters groups what deploys to clusters by the cluster: those that do not answer first, then the worst.
func Clusters(items []*Item) []*Cluster {
	byName := map[string]*Cluster{}
	for _, i := range items {
		if i.Kind != "Kustomization" && i.Kind != "HelmRelease" {
			continue
		}
		name := i.Target()
		c := byName[name]
		if c == nil {
			c = &Cluster{Name: name, Counts: Counts{}, Revisions: []string{}}
			byName[name] = c
		}
		c.add(i)
	}
	all := make([]*Cluster, 0, len(byName))
	for _, c := range byName {
		slices.Sort(c.Revisions)
		c.Different = len(c.Revisions)
		c.Revisions = c.Revisions[:min(c.Different, maxRevisions)]
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *Cluster) int {
		return cmp.Or(a.rank()-b.rank(), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Target returns the name of the cluster that an object deploys to.
func (i *Item) Target() string { return cmp.Or(i.Cluster, lineage.ThisCluster) }

func (c *Cluster) add(i *Item) {
	c.Objects++
	c.Counts[i.State]++
	if i.Revision != "" && !slices.Contains(c.Revisions, i.Revision) {
		c.Revisions = append(c.Revisions, i.Revision)
	}
	if i.State != Ready && (c.Problem == nil || slices.Index(States, i.State) < slices.Index(States, c.Problem.State)) {
		c.Problem = i
	}
	if c.Unreachable == nil && i.State == Failed && strings.Contains(i.Message, hostguard.ClusterHint) {
		c.Unreachable = i
	}
}

func (c *Cluster) rank() int {
	switch {
	case c.Unreachable != nil:
		return -1
	case c.Problem != nil:
		return slices.Index(States, c.Problem.State)
	}
	return len(States)
}
