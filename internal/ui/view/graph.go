package view

import "slices"

// MaxNodes bounds the nodes of a graph.
const MaxNodes = 2000

// maxSelected bounds the objects that are connected to an Alert which selects them. More would hide the picture.
const maxSelected = 20

// Relation is why two nodes are connected.
type Relation string

// Relations.
const (
	SourceOf  Relation = "source"
	GateOf    Relation = "gate"
	Applied   Relation = "applied"
	DependsOn Relation = "dependsOn"
	Notifies  Relation = "notifies" // events go from an object to an Alert, and from there to a Provider
)

// Edge connects two nodes, in the direction in which a change travels.
type Edge struct {
	From     string   `json:"from"`
	To       string   `json:"to"`
	Relation Relation `json:"relation"`
}

// Graph is how objects are connected.
type Graph struct {
	Nodes   []*Item  `json:"nodes"`
	Edges   []Edge   `json:"edges"`
	Missing []string `json:"missing,omitempty"` // referenced, but not there or hidden
	Omitted int      `json:"omitted"`           // nodes above MaxNodes
}

// NewGraph connects items. If root is set, only what is upstream or downstream of it is included.
func NewGraph(items []*Item, root string) *Graph {
	byID := make(map[string]*Item, len(items))
	for _, i := range items {
		byID[i.ID] = i
	}
	edges := edgesOf(items)
	if root != "" {
		keep := reachable(edges, root)
		items = slices.DeleteFunc(slices.Clone(items), func(i *Item) bool { return !keep[i.ID] })
	}
	g := &Graph{Edges: []Edge{}, Nodes: items}
	if len(items) > MaxNodes {
		g.Nodes, g.Omitted = items[:MaxNodes], len(items)-MaxNodes
	}
	shown := make(map[string]bool, len(g.Nodes))
	for _, n := range g.Nodes {
		shown[n.ID] = true
	}
	missing := map[string]bool{}
	for _, e := range edges {
		if !shown[e.To] || !shown[e.From] && byID[e.From] != nil {
			continue // an end is not part of this graph
		}
		g.Edges = append(g.Edges, e)
		if !shown[e.From] && !missing[e.From] {
			missing[e.From] = true
			g.Missing = append(g.Missing, e.From)
		}
	}
	return g
}

// edgesOf returns the relations of all items.
func edgesOf(items []*Item) []Edge {
	var edges []Edge
	for _, i := range items {
		for _, s := range i.Sources {
			edges = append(edges, Edge{From: s, To: i.ID, Relation: SourceOf})
		}
		for _, g := range i.Gates {
			edges = append(edges, Edge{From: g, To: i.ID, Relation: GateOf})
		}
		for _, d := range i.DependsOn {
			edges = append(edges, Edge{From: d, To: i.ID, Relation: DependsOn})
		}
		for _, w := range i.Watches {
			edges = append(edges, Edge{From: w, To: i.ID, Relation: Notifies})
		}
		edges = append(edges, selected(items, i)...)
		if i.Provider != "" {
			edges = append(edges, Edge{From: i.ID, To: i.Provider, Relation: Notifies})
		}
		if i.AppliedBy != "" && i.AppliedBy != i.ID {
			edges = append(edges, Edge{From: i.AppliedBy, To: i.ID, Relation: Applied})
		}
	}
	return edges
}

// selected connects an Alert with what it selects, unless that is too much to be seen.
func selected(items []*Item, alert *Item) []Edge {
	var edges []Edge
	for _, s := range alert.Selects {
		for _, i := range items {
			if !s.contains(i) {
				continue
			}
			if len(edges) == maxSelected {
				return nil
			}
			edges = append(edges, Edge{From: i.ID, To: alert.ID, Relation: Notifies})
		}
	}
	return edges
}

// reachable returns the root with all that is upstream or downstream of it, and the gates in front of that.
func reachable(edges []Edge, root string) map[string]bool {
	up, down := map[string][]string{}, map[string][]string{}
	for _, e := range edges {
		up[e.To] = append(up[e.To], e.From)
		down[e.From] = append(down[e.From], e.To)
	}
	keep := map[string]bool{}
	for _, next := range []map[string][]string{up, down} {
		seen := map[string]bool{root: true}
		for queue := []string{root}; len(queue) > 0; queue = queue[1:] {
			keep[queue[0]] = true
			for _, id := range next[queue[0]] {
				if !seen[id] {
					seen[id] = true
					queue = append(queue, id)
				}
			}
		}
	}
	for _, e := range edges {
		if e.Relation == GateOf && keep[e.To] {
			keep[e.From] = true
		}
	}
	return keep
}
