import dagre from '@dagrejs/dagre';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Edge, Graph as Data, Item } from '../api';
import { useData, useTitle } from '../hooks';
import { Badge, Loading, ObjectLink, objectPath, Problem, shortRevision } from '../parts';
import { go, Place, setQuery } from '../router';

const size = { width: 220, height: 52 };
const shownAsGraph = 300; // nodes; more are readable as a table only, until a filter or a root is chosen

interface Box {
  id: string;
  item?: Item; // undefined for an object that does not exist or is hidden
  x: number;
  y: number;
}

interface Layout {
  boxes: Box[];
  lines: { edge: Edge; points: { x: number; y: number }[] }[];
  width: number;
  height: number;
}

// layout places the nodes in layers, sources first.
function layout(data: Data): Layout {
  const g = new dagre.graphlib.Graph({ multigraph: true });
  g.setGraph({ rankdir: 'LR', nodesep: 14, ranksep: 60, marginx: 20, marginy: 20 });
  g.setDefaultEdgeLabel(() => ({}));
  const items = new Map(data.nodes.map((n) => [n.id, n]));
  for (const id of [...items.keys(), ...(data.missing ?? [])]) {
    g.setNode(id, { ...size });
  }
  for (const e of data.edges) {
    g.setEdge(e.from, e.to, {}, e.relation);
  }
  dagre.layout(g);
  const boxes = g.nodes().map((id: string) => {
    const n = g.node(id);
    return { id, item: items.get(id), x: n.x - size.width / 2, y: n.y - size.height / 2 };
  });
  const lines = data.edges.map((edge) => ({
    edge,
    points: (g.edge(edge.from, edge.to, edge.relation)?.points ?? []) as { x: number; y: number }[],
  }));
  const whole = g.graph();
  return { boxes, lines, width: whole.width ?? 0, height: whole.height ?? 0 };
}

// Graph shows how objects are connected, as a picture and as a table.
export function Graph({ place }: { place: Place }) {
  useTitle('Graph');
  const { data, error } = useData<Data>('graph?' + place.query.toString());
  const table = place.query.get('as') === 'table';
  const root = place.query.get('root');
  return (
    <>
      <h1>Graph {root && <small>around {root}</small>}</h1>
      <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
        <label>
          Filter{' '}
          <input type="search" value={place.query.get('q') ?? ''} onInput={(e) => setQuery(place, { q: e.currentTarget.value })} />
        </label>
        {root && (
          <button type="button" onClick={() => setQuery(place, { root: '' })}>
            Show everything
          </button>
        )}
        <button type="button" aria-pressed={table} onClick={() => setQuery(place, { as: table ? '' : 'table' })}>
          {table ? 'Show as picture' : 'Show as table'}
        </button>
      </form>
      <Problem error={error} />
      {!data && <Loading error={error} />}
      {data && data.omitted > 0 && <p class="alert">{data.omitted} objects are not shown: filter by a word.</p>}
      {data && !table && data.nodes.length > shownAsGraph && (
        <p class="quiet">This is a picture of {data.nodes.length} objects: filter by a word to see less.</p>
      )}
      {data && (table ? <Relations data={data} /> : <Picture data={data} />)}
    </>
  );
}

// Relations is the graph for keyboards and screen readers.
function Relations({ data }: { data: Data }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of relations">
      <table>
        <thead>
          <tr>
            <th>State</th>
            <th>Object</th>
            <th>Comes from</th>
          </tr>
        </thead>
        <tbody>
          {data.nodes.map((n) => (
            <tr key={n.id}>
              <td>
                <Badge state={n.state} />
              </td>
              <td>
                <ObjectLink id={n.id} />
              </td>
              <td>
                {data.edges
                  .filter((e) => e.to === n.id)
                  .map((e) => (
                    <div>
                      {e.relation}: <ObjectLink id={e.from} />
                    </div>
                  ))}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Picture({ data }: { data: Data }) {
  // The places of the nodes depend on the relations only, so a change of a state moves nothing.
  const shape = data.nodes.map((n) => n.id).join() + data.edges.map((e) => e.from + e.to + e.relation).join();
  const placed = useMemo(() => layout(data), [shape]);
  const items = new Map(data.nodes.map((n) => [n.id, n]));
  const view = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState({ x: 0, y: 0, zoom: 1 });
  const drag = useRef<{ x: number; y: number } | null>(null);
  const zoomBy = (factor: number) => setAt((a) => ({ ...a, zoom: Math.min(2, Math.max(0.1, a.zoom * factor)) }));
  useEffect(() => {
    const width = view.current?.clientWidth ?? placed.width;
    setAt({ x: 0, y: 0, zoom: Math.min(1, Math.max(0.3, width / Math.max(placed.width, 1))) });
  }, [placed]);
  const onKey = (e: KeyboardEvent) => {
    const moves: Record<string, [number, number]> = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    const move = e.target === e.currentTarget ? moves[e.key] : undefined;
    if (move) {
      e.preventDefault();
      setAt((a) => ({ ...a, x: a.x + move[0], y: a.y + move[1] }));
    }
    if (e.key === '+' || e.key === '-') {
      zoomBy(e.key === '+' ? 1.2 : 1 / 1.2);
    }
  };
  return (
    <>
      <div class="buttons">
        <button onClick={() => zoomBy(1.2)}>Zoom in</button>
        <button onClick={() => zoomBy(1 / 1.2)}>Zoom out</button>
      </div>
      <div
        ref={view}
        class="picture"
        tabIndex={0}
        role="group"
        aria-label="Picture of the graph: arrow keys move it, plus and minus zoom"
        onKeyDown={onKey}
        onPointerDown={(e) => (drag.current = { x: e.clientX - at.x, y: e.clientY - at.y })}
        onPointerMove={(e) => {
          if (drag.current && e.buttons) {
            setAt({ ...at, x: e.clientX - drag.current.x, y: e.clientY - drag.current.y });
          }
        }}
        onPointerUp={() => (drag.current = null)}
      >
        <svg width="100%" height="100%">
          <defs>
            <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
              <path d="M0 0 8 4 0 8z" class="arrow" />
            </marker>
          </defs>
          <g transform={`translate(${at.x} ${at.y}) scale(${at.zoom})`}>
            {placed.lines.map((l) => (
              <polyline class={`edge ${l.edge.relation}`} points={l.points.map((p) => `${p.x},${p.y}`).join(' ')} marker-end="url(#arrow)">
                <title>
                  {l.edge.from} to {l.edge.to}: {l.edge.relation}
                </title>
              </polyline>
            ))}
            {placed.boxes.map((b) => (
              <Node key={b.id} box={b} item={items.get(b.id)} />
            ))}
          </g>
        </svg>
      </div>
    </>
  );
}

const cut = (text: string, n: number) => (text.length > n ? text.slice(0, n - 1) + '…' : text);

function Node({ box, item }: { box: Box; item?: Item }) {
  const [kind = '', namespace = '', ...rest] = box.id.split('/');
  const name = rest.join('/');
  const door = item?.gate ? (item.gate.open ? 'open' : 'closed') : '';
  const state = item ? (door || item.state) : 'not found';
  const look = door === 'closed' ? 'waiting' : (item?.state ?? 'missing');
  return (
    <g class={`node ${look} ${item?.gate ? 'door' : ''}`} transform={`translate(${box.x} ${box.y})`}>
    <a
      href={objectPath(box.id)}
      onClick={(e) => {
        e.preventDefault();
        go(objectPath(box.id));
      }}
    >
      <title>
        {box.id}: {state}. {item?.message}
      </title>
      <rect width={size.width} height={size.height} rx={item?.gate ? 0 : 8} />
      <text x={10} y={16} class="kind">
        {cut(`${kind} · ${state}`, 36)}
      </text>
      <text x={10} y={32} class="name">
        {cut(name, 28)}
      </text>
      <text x={10} y={46} class="kind">
        {cut(`${namespace} ${shortRevision(item?.revision)}`, 36)}
      </text>
    </a>
    </g>
  );
}
