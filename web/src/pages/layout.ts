import dagre from '@dagrejs/dagre';
import { size } from './fold';

// Shape is what decides on the places of nodes.
export interface Shape {
  nodes: string[];
  edges: { from: string; to: string; relation: string }[];
}

export interface Layout {
  boxes: { id: string; x: number; y: number }[];
  lines: { from: string; to: string; relation: string; points: { x: number; y: number }[] }[];
  width: number;
  height: number;
}

interface Point {
  x: number;
  y: number;
}

// way leads an edge from the right side of a node to the left side of another. Between, it passes each layer straight, at
// the place that the layout keeps free of nodes. Edges that go back keep the way of the layout.
function way(from: Point, to: Point, by: Point[]): Point[] {
  const half = size.width / 2;
  if (to.x - from.x < size.width) {
    return by.map(({ x, y }) => ({ x, y }));
  }
  const layers = by.slice(1, -1).filter((p) => p.x > from.x + size.width && p.x < to.x - size.width);
  const through = layers.flatMap(({ x, y }) => [{ x: x - half, y }, { x: x + half, y }]);
  return [{ x: from.x + half, y: from.y }, ...through, { x: to.x - half, y: to.y }];
}

// place puts the nodes in layers, sources first.
export function place(shape: Shape): Layout {
  const g = new dagre.graphlib.Graph({ multigraph: true });
  g.setGraph({ rankdir: 'LR', nodesep: 14, ranksep: 72, marginx: 20, marginy: 20 });
  g.setDefaultEdgeLabel(() => ({}));
  for (const id of shape.nodes) {
    g.setNode(id, { ...size });
  }
  for (const e of shape.edges) {
    g.setEdge(e.from, e.to, {}, e.relation);
  }
  dagre.layout(g);
  const middle = (id: string) => g.node(id) as { x: number; y: number };
  const boxes = g.nodes().map((id: string) => {
    const n = g.node(id);
    return { id, x: n.x - size.width / 2, y: n.y - size.height / 2 };
  });
  const lines = shape.edges.map((e) => ({
    ...e,
    points: way(middle(e.from), middle(e.to), (g.edge(e.from, e.to, e.relation)?.points ?? []) as Point[]),
  }));
  const whole = g.graph();
  return { boxes, lines, width: whole.width ?? 0, height: whole.height ?? 0 };
}
