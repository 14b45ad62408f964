import { Edge, Graph, Item, Node, Tree } from '../api';

// size is that of a box.
export const size = { width: 220, height: 52 };

// Shown is a node of the picture: an object of ours, an object that one of ours made, or one that was not found.
export interface Shown {
  id: string;
  item?: Item;
  made?: Node;
  gates?: Shown[]; // the doors in front of it
}

// clusterNode begins the IDs of clusters that objects deploy to.
export const clusterNode = 'Cluster//';

export interface Picture {
  nodes: Shown[];
  edges: Edge[];
  below: Map<string, number>; // direct successors of a node, shown or not
}

// idOf returns the ID of an object that was made.
const idOf = (n: Node) => `${n.kind}/${n.namespace ?? ''}/${n.name}`;

// withObjects adds the objects of trees, down to pods.
function withObjects(data: Graph, trees: Map<string, Tree>): { nodes: Map<string, Shown>; edges: Edge[] } {
  const nodes = new Map<string, Shown>(data.nodes.map((item) => [item.id, { id: item.id, item }]));
  for (const id of data.missing ?? []) {
    nodes.set(id, { id });
  }
  const edges = [...data.edges];
  for (const item of data.nodes) {
    if (item.cluster) {
      const id = clusterNode + item.cluster;
      nodes.set(id, { id, made: { kind: 'Cluster', name: item.cluster, status: 'Unknown' } });
      edges.push({ from: item.id, to: id, relation: 'applied' });
    }
  }
  const known = new Set(edges.map((e) => `${e.from} ${e.to}`));
  const add = (from: string, below: Node[] | undefined) => {
    for (const made of below ?? []) {
      const id = idOf(made);
      if (!nodes.has(id)) {
        nodes.set(id, { id, made });
      }
      if (!known.has(`${from} ${id}`)) {
        known.add(`${from} ${id}`);
        edges.push({ from, to: id, relation: 'applied' });
      }
      add(id, made.below);
    }
  };
  for (const [id, tree] of trees) {
    if (nodes.has(id)) {
      add(id, tree.top.below);
    }
  }
  return { nodes, edges };
}

// carries reports whether what follows by an edge is hidden with its beginning: dependencies are in front of objects,
// which come from sources and from what applied them.
const carries = (e: Edge) => (e.relation === 'source' || e.relation === 'applied') && e.from !== e.to;

// fold returns what is shown: everything that can be reached from a node without predecessors, but nothing behind a
// folded node. Nodes of a cycle without such a beginning are shown always. Gates are doors in front of what they hold;
// only those that hold nothing are nodes.
export function fold(data: Graph, trees: Map<string, Tree>, folded: Set<string>): Picture {
  const { nodes, edges } = withObjects(data, trees);
  const next = new Map<string, string[]>();
  const doors = new Map<string, Shown[]>(); // by what is behind them
  const gates = new Set<string>();
  const inner = new Set<string>();
  const append = (map: Map<string, string[]>, e: Edge) => map.set(e.from, [...(map.get(e.from) ?? []), e.to]);
  for (const e of edges) {
    if (carries(e)) {
      append(next, e);
      inner.add(e.to);
    } else if (e.relation === 'gate') {
      gates.add(e.from);
      doors.set(e.to, [...(doors.get(e.to) ?? []), nodes.get(e.from) ?? { id: e.from }]);
    }
  }
  const reach = (stops: Set<string>) => {
    const found = new Set<string>();
    const queue = [...nodes.keys()].filter((id) => !inner.has(id));
    for (let id = queue.pop(); id !== undefined; id = queue.pop()) {
      if (!found.has(id)) {
        found.add(id);
        queue.push(...(stops.has(id) ? [] : (next.get(id) ?? [])));
      }
    }
    return found;
  };
  const all = reach(new Set());
  const shown = folded.size ? reach(folded) : all;
  const visible = (id: string) => (shown.has(id) || !all.has(id)) && !gates.has(id);
  return {
    nodes: [...nodes.values()].filter((n) => visible(n.id)).map((n) => (doors.has(n.id) ? { ...n, gates: doors.get(n.id) } : n)),
    edges: edges.filter((e) => visible(e.from) && visible(e.to) && !(folded.has(e.from) && carries(e))),
    below: new Map([...next].map(([id, ids]) => [id, ids.length])),
  };
}
