package view

import (
	"maps"
	"slices"
	"strings"
)

// Bounds of groups.
const (
	maxGroups    = 1000
	maxLabelKeys = 200
)

// Groups are objects by namespace, source or label.
type Groups struct {
	Groups  []Group  `json:"groups"`
	Omitted int      `json:"omitted"` // groups that are not included
	Labels  []string `json:"labels"`  // keys, of all objects
}

// By returns what groups an object: its values of `namespace`, `source`, or the label of a key. An object without a
// value is in the group with an empty name.
func (i *Item) By(by string) []string {
	switch by {
	case "namespace":
		return []string{i.Namespace}
	case "source":
		if len(i.Sources) > 0 {
			return i.Sources
		}
		return []string{""}
	}
	return []string{i.Label(by)}
}

// NewGroups groups objects. An empty by groups none, and lists the labels.
func NewGroups(items []*Item, by string) *Groups {
	found, keys := groups{}, map[string]bool{}
	for _, i := range items {
		for _, l := range i.Labels {
			key, _, _ := strings.Cut(l, "=")
			keys[key] = true
		}
		if by != "" {
			for _, name := range i.By(by) {
				found.add(name, i.State)
			}
		}
	}
	g := &Groups{Groups: found.sorted(), Labels: slices.Sorted(maps.Keys(keys))}
	if n := slices.IndexFunc(g.Groups, func(g Group) bool { return g.Name == "" }); n >= 0 {
		without := g.Groups[n]
		g.Groups = append(slices.Delete(g.Groups, n, n+1), without)
	}
	g.Omitted = max(0, len(g.Groups)-maxGroups)
	g.Groups, g.Labels = g.Groups[:len(g.Groups)-g.Omitted], g.Labels[:min(len(g.Labels), maxLabelKeys)]
	return g
}
