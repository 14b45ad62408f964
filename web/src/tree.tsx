import { Expand, ZoomIn, ZoomOut } from 'lucide-preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Node, State } from './api';
import { Icon, KindIcon, StateIcon } from './icons';

const box = { width: 232, height: 50 };
const step = { x: 290, y: 66 };
const margin = 20;
const foldedAbove = 12; // children of one kind that are shown as one box

// Leaf is a box of the tree.
export interface Leaf {
  node: Node;
  id: string;
  x: number;
  y: number;
  from?: Leaf;
  more?: number; // of the same kind, which the box stands for
}

const states: Record<string, State> = { Current: 'ready', InProgress: 'progressing', Terminating: 'waiting', Failed: 'failed', NotFound: 'failed', Unknown: 'suspended', Hidden: 'suspended' };

// stateOf returns the state of an object in the cluster.
export function stateOf(status: string): State {
  return states[status] ?? 'suspended';
}

export const idOf = (n: Node) => `${n.kind}/${n.namespace ?? ''}/${n.name}`;

// flat returns the objects of a tree, with their depth.
export function flat(nodes: Node[], depth = 0): [Node, number][] {
  return nodes.flatMap((n) => [[n, depth] as [Node, number], ...flat(n.below ?? [], depth + 1)]);
}

// place puts each node right of what made it. Leaves have a row each; a node is in the middle of its own.
export function place(top: Node, words: string): { leaves: Leaf[]; width: number; height: number } {
  const leaves: Leaf[] = [];
  let row = 0;
  let deepest = 0;
  const add = (node: Node, depth: number, from?: Leaf, more?: number): Leaf => {
    const leaf: Leaf = { node, id: idOf(node), x: margin + depth * step.x, y: 0, from, more };
    leaves.push(leaf);
    deepest = Math.max(deepest, depth);
    const below = more ? [] : matching(node.below ?? [], words);
    const kinds = new Map<string, Node[]>();
    below.forEach((n) => kinds.set(n.kind, [...(kinds.get(n.kind) ?? []), n]));
    const shown = [...kinds.values()].flatMap((all): [Node, number?][] =>
      all.length > foldedAbove && !words && all.every((n) => n.status === 'Current') ? [[all[0] as Node, all.length - 1]] : all.map((n) => [n]));
    const placed = shown.map(([n, rest]) => add(n, depth + 1, leaf, rest));
    const [first, last] = [placed[0], placed[placed.length - 1]];
    leaf.y = first && last ? (first.y + last.y) / 2 : margin + row++ * step.y;
    return leaf;
  };
  add(top, 0);
  return { leaves, width: margin * 2 + deepest * step.x + box.width, height: margin * 2 + Math.max(0, row - 1) * step.y + box.height };
}

// matching returns the nodes that a filter leaves, with what leads to them.
function matching(nodes: Node[], words: string): Node[] {
  const has = (n: Node): boolean => idOf(n).toLowerCase().includes(words) || (n.below ?? []).some(has);
  return words ? nodes.filter(has) : nodes;
}

// Tree draws what an object made, down to pods. touched are the objects that a pending change concerns.
export function Tree({ top, words, touched, chosen, onChoose }: { top: Node; words: string; touched: Set<string>; chosen?: string; onChoose: (n: Node) => void }) {
  const board = useRef<HTMLDivElement>(null);
  const [zoom, setZoom] = useState(1);
  const { leaves, width, height } = useMemo(() => place(top, words.toLowerCase()), [top, words]);
  const fit = () => setZoom(Math.min(1, Math.max(0.3, (board.current?.clientWidth ?? width) / width)));
  useEffect(fit, [width]);
  return (
    <>
      <div class="line pad">
        <Legend leaves={leaves} />
        <span class="end">
          <button class="ghost" aria-label="Fit" title="Fit" onClick={fit}>
            <Icon of={Expand} />
          </button>
          <button class="ghost" aria-label="Zoom in" title="Zoom in" onClick={() => setZoom(Math.min(2, zoom * 1.2))}>
            <Icon of={ZoomIn} />
          </button>
          <button class="ghost" aria-label="Zoom out" title="Zoom out" onClick={() => setZoom(Math.max(0.3, zoom / 1.2))}>
            <Icon of={ZoomOut} />
          </button>
        </span>
      </div>
      <div class="board" ref={board} tabIndex={0} role="group" aria-label="Tree of objects">
        <div style={{ width: width * zoom, height: height * zoom }}>
          <div style={{ transform: `scale(${zoom})`, transformOrigin: '0 0', width, height, position: 'relative' }}>
            <svg class="edges" width={width} height={height} aria-hidden="true">
              {leaves.map((l) => l.from && <path d={edge(l.from, l)} class={touched.has(l.id) ? 'touched' : undefined} />)}
            </svg>
            {leaves.map((l) => (
              <Box leaf={l} waits={touched.has(l.id)} chosen={l.id === chosen} onChoose={onChoose} />
            ))}
          </div>
        </div>
      </div>
    </>
  );
}

function edge(from: Leaf, to: Leaf): string {
  const [x1, y1, x2, y2] = [from.x + box.width, from.y + box.height / 2, to.x, to.y + box.height / 2];
  const middle = (x1 + x2) / 2;
  return `M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
}

function Legend({ leaves }: { leaves: Leaf[] }) {
  const count = (s: State) => leaves.reduce((n, l) => n + (l.from && stateOf(l.node.status) === s ? 1 + (l.more ?? 0) : 0), 0);
  return (
    <span class="line quiet">
      {(['ready', 'progressing', 'waiting', 'failed'] as State[]).filter(count).map((s) => (
        <span class="line">
          <span class={`dot ${s}`} /> {count(s)} {s}
        </span>
      ))}
    </span>
  );
}

function Box({ leaf: { node, x, y, from, more }, waits, chosen, onChoose }: { leaf: Leaf; waits: boolean; chosen: boolean; onChoose: (n: Node) => void }) {
  const state = stateOf(node.status);
  const look = waits ? 'waiting' : state === 'failed' ? 'failed' : '';
  return (
    <button class={`leaf ${look} ${from ? '' : 'root'}`} style={{ left: x, top: y }} title={`${idOf(node)}: ${node.status} ${node.message ?? ''}`}
      aria-pressed={chosen} onClick={() => onChoose(node)}>
      <KindIcon kind={node.kind} />
      <span>
        <b>{more ? `${more + 1} like ${node.name}` : node.name}</b>
        <small>
          {node.kind}
          {node.message && node.status !== 'Current' ? ` · ${node.message}` : node.images?.length ? ` · ${node.images[0]?.split('/').pop()}` : ''}
        </small>
      </span>
      <StateIcon state={waits ? 'waiting' : state} size={16} />
    </button>
  );
}
