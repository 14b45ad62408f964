import { ComponentChildren } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Edge, Tree } from '../api';
import { objectPath, Problem, shortRevision } from '../parts';
import { go } from '../router';
import { Picture as Content, Shown, size } from './fold';
import type { Layout } from './layout';
import LayoutWorker from './layout?worker';

const settleDelay = 200; // milliseconds without a move until the picture is drawn sharply again
const readableZoom = 0.4; // texts are drawn from here on
const dragThreshold = 4; // pixels that a click may move

// useLayout returns the places of the nodes, which a worker computes. Until they are there, the last ones are kept.
function useLayout(of: Content): { layout?: Layout; error?: Error } {
  const [state, setState] = useState<{ layout?: Layout; error?: Error }>({});
  const worker = useRef<Worker>();
  const asked = useRef(0);
  useEffect(() => {
    const own = new LayoutWorker();
    own.onmessage = (e: MessageEvent<{ number: number; layout: Layout }>) => {
      if (e.data.number === asked.current) {
        setState({ layout: e.data.layout });
      }
    };
    own.onerror = () => setState({ error: new Error('The picture cannot be drawn. Show it as a table.') });
    worker.current = own;
    return () => own.terminate();
  }, []);
  // The places depend on the relations only, so a change of a state moves nothing.
  const shape = of.nodes.map((n) => n.id).join() + of.edges.map((e) => e.from + e.to + e.relation).join();
  useEffect(() => {
    asked.current++;
    worker.current?.postMessage({
      number: asked.current,
      shape: { nodes: of.nodes.map((n) => n.id), edges: of.edges.map(({ from, to, relation }) => ({ from, to, relation })) },
    });
  }, [shape]);
  return state;
}

interface Props {
  of: Content;
  trees: Map<string, Tree>;
  folded: Set<string>;
  toggle: (id: string) => void;
  toggleObjects: (id: string) => void;
}

// Picture is the graph as a picture.
export function Picture(props: Props) {
  const { layout, error } = useLayout(props.of);
  if (error) {
    return <Problem error={error} />;
  }
  return layout ? (
    <Canvas layout={layout} draw={(part) => <Drawing {...props} layout={layout} part={part} />} />
  ) : (
    <p class="quiet" role="status">
      Drawing {props.of.nodes.length} objects…
    </p>
  );
}

// Part is what is drawn of a picture: what can be seen, and as much around it.
interface Part {
  left: number;
  top: number;
  right: number;
  bottom: number;
  detailed: boolean; // with texts
}

// Canvas moves and zooms its content as one layer. It is drawn again only when a part comes into view that is not drawn.
function Canvas({ layout, draw }: { layout: Layout; draw: (part: Part) => ComponentChildren }) {
  const [part, setPart] = useState<Part>();
  const drawn = useRef<Part>();
  const view = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const at = useRef({ x: 0, y: 0, zoom: 1 });
  const drag = useRef<{ x: number; y: number; startX: number; startY: number; moved: boolean } | null>(null);
  const settle = useRef(0);
  const move = (next: { x: number; y: number; zoom: number }) => {
    at.current = { ...next, zoom: Math.min(2, Math.max(0.1, next.zoom)) };
    const style = content.current?.style;
    if (!style) {
      return;
    }
    style.transform = `translate(${at.current.x}px, ${at.current.y}px) scale(${at.current.zoom})`;
    style.willChange = 'transform';
    window.clearTimeout(settle.current);
    settle.current = window.setTimeout(() => (style.willChange = ''), settleDelay);
    show();
  };
  // show draws what can be seen now, unless it is drawn.
  const show = () => {
    const { x, y, zoom } = at.current;
    const width = (view.current?.clientWidth ?? 0) / zoom;
    const height = (view.current?.clientHeight ?? 0) / zoom;
    const seen = { left: -x / zoom, top: -y / zoom, right: -x / zoom + width, bottom: -y / zoom + height };
    const detailed = zoom >= readableZoom;
    const before = drawn.current;
    if (
      before?.detailed === detailed &&
      before.left <= seen.left &&
      before.top <= seen.top &&
      before.right >= seen.right &&
      before.bottom >= seen.bottom
    ) {
      return;
    }
    drawn.current = {
      left: seen.left - width / 2,
      top: seen.top - height / 2,
      right: seen.right + width / 2,
      bottom: seen.bottom + height / 2,
      detailed,
    };
    setPart(drawn.current);
  };
  useEffect(() => {
    window.addEventListener('resize', show);
    return () => window.removeEventListener('resize', show);
  }, []);
  const zoomBy = (factor: number) => move({ ...at.current, zoom: at.current.zoom * factor });
  useEffect(() => {
    const width = view.current?.clientWidth ?? layout.width;
    move({ x: 0, y: 0, zoom: Math.min(1, Math.max(0.3, width / Math.max(layout.width, 1))) });
  }, []);
  const onKey = (e: KeyboardEvent) => {
    const moves: Record<string, [number, number]> = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    const by = e.target === e.currentTarget ? moves[e.key] : undefined;
    if (by) {
      e.preventDefault();
      move({ ...at.current, x: at.current.x + by[0], y: at.current.y + by[1] });
    }
    if (e.key === '+' || e.key === '-') {
      zoomBy(e.key === '+' ? 1.2 : 1 / 1.2);
    }
  };
  const onMove = (e: PointerEvent) => {
    const from = drag.current;
    if (!from || !e.buttons) {
      return;
    }
    const x = e.clientX - from.x;
    const y = e.clientY - from.y;
    from.moved ||= Math.abs(e.clientX - from.startX) + Math.abs(e.clientY - from.startY) > dragThreshold;
    move({ ...at.current, x, y });
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
        onDragStart={(e) => e.preventDefault()}
        onPointerDown={(e) =>
          (drag.current = {
            x: e.clientX - at.current.x,
            y: e.clientY - at.current.y,
            startX: e.clientX,
            startY: e.clientY,
            moved: false,
          })
        }
        onPointerMove={onMove}
        onClickCapture={(e) => {
          if (drag.current?.moved) {
            e.preventDefault(); // the end of a move is no click
            e.stopPropagation();
          }
          drag.current = null;
        }}
        onWheel={(e) => {
          if (e.ctrlKey || e.metaKey) {
            e.preventDefault();
            zoomBy(e.deltaY < 0 ? 1.1 : 1 / 1.1);
          }
        }}
      >
        <div ref={content} class="canvas">
          {part && draw(part)}
        </div>
      </div>
    </>
  );
}

// Drawing is the content of the picture.
function Drawing(props: Props & { layout: Layout; part: Part }) {
  const { layout, part, of, trees, folded } = props;
  const nodes = useMemo(() => new Map(of.nodes.map((n) => [n.id, n])), [of]);
  return (
    <svg width={layout.width} height={layout.height}>
      <defs>
        <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
          <path d="M0 0 8 4 0 8z" class="arrow" />
        </marker>
      </defs>
      {layout.lines.filter((l) => crosses(l.points, part)).map((l) => (
        <Line key={l.from + ' ' + l.to + ' ' + l.relation} edge={l as Edge} points={l.points} />
      ))}
      {layout.boxes.map((b) => {
        const shown = nodes.get(b.id);
        if (!shown || !crosses([b, { x: b.x + size.width, y: b.y + size.height }], part)) {
          return null; // out of sight, or it will be placed anew
        }
        return (
          <g key={b.id} transform={`translate(${b.x} ${b.y})`}>
            <Box of={shown} detailed={part.detailed} />
            {part.detailed && (of.below.get(b.id) ?? 0) > 0 && (
              <Toggle
                y={0}
                open={!folded.has(b.id)}
                label={`what follows ${b.id}`}
                title={folded.has(b.id) ? `Show the ${of.below.get(b.id)} that follow` : 'Hide what follows'}
                onToggle={() => props.toggle(b.id)}
              />
            )}
            {part.detailed && (shown.item?.objects ?? 0) > 0 && (
              <Toggle
                y={size.height - 18}
                open={trees.has(b.id)}
                label={`objects of ${b.id}`}
                title={trees.has(b.id) ? 'Hide its objects' : `Show its ${shown.item?.objects} objects`}
                onToggle={() => props.toggleObjects(b.id)}
              />
            )}
          </g>
        );
      })}
    </svg>
  );
}

// crosses reports whether the rectangle around points is in sight.
function crosses(points: { x: number; y: number }[], part: Part): boolean {
  const xs = points.map((p) => p.x);
  const ys = points.map((p) => p.y);
  return (
    Math.max(...xs) >= part.left && Math.min(...xs) <= part.right && Math.max(...ys) >= part.top && Math.min(...ys) <= part.bottom
  );
}

function Line({ edge, points }: { edge: Edge; points: { x: number; y: number }[] }) {
  return (
    <polyline class={`edge ${edge.relation}`} points={points.map((p) => `${p.x},${p.y}`).join(' ')} marker-end="url(#arrow)">
      <title>
        {edge.from} to {edge.to}: {edge.relation}
      </title>
    </polyline>
  );
}

// Toggle is a button on the right edge of a box.
function Toggle(props: { y: number; open: boolean; label: string; title: string; onToggle: () => void }) {
  return (
    <g
      class="toggle"
      role="button"
      tabindex={0} // attributes of SVG depend on case
      aria-expanded={props.open}
      aria-label={props.label}
      transform={`translate(${size.width - 18} ${props.y})`}
      onClick={props.onToggle}
      onKeyDown={(e) => {
        if (e.key === 'Enter' || e.key === ' ') {
          e.preventDefault();
          props.onToggle();
        }
      }}
    >
      <title>{props.title}</title>
      <rect width={18} height={18} />
      <text x={5} y={14}>
        {props.open ? '−' : '+'}
      </text>
    </g>
  );
}

const cut = (text: string, n: number) => (text.length > n ? text.slice(0, n - 1) + '…' : text);

// Looks of the states that objects in the cluster have.
const looks: Record<string, string> = { Current: 'ready', InProgress: 'progressing', Terminating: 'progressing', Failed: 'failed', NotFound: 'failed' };

function Box({ of, detailed }: { of: Shown; detailed: boolean }) {
  const { id, item, made } = of;
  const [kind = '', namespace = '', ...rest] = id.split('/');
  const door = item?.gate ? (item.gate.open ? 'open' : 'closed') : '';
  const state = item ? door || item.state : (made?.status ?? 'not found');
  const look = door === 'closed' ? 'waiting' : (item?.state ?? (made ? (looks[made.status] ?? 'suspended') : 'missing'));
  const text = (
    <>
      <title>
        {id}: {state}. {item?.message ?? made?.message}
      </title>
      <rect width={size.width} height={size.height} rx={item?.gate ? 0 : 8} />
      {detailed && (
        <>
          <text x={10} y={16} class="kind">
            {cut(`${kind} · ${state}`, 32)}
          </text>
          <text x={10} y={32} class="name">
            {cut(rest.join('/'), 26)}
          </text>
          <text x={10} y={46} class="kind">
            {cut(`${namespace} ${shortRevision(item?.revision)}`, 32)}
          </text>
        </>
      )}
    </>
  );
  return (
    <g class={`node ${look} ${item?.gate ? 'door' : ''}`}>
      {made ? (
        text // it has no page of its own
      ) : (
        <a
          href={objectPath(id)}
          onClick={(e) => {
            e.preventDefault();
            go(objectPath(id));
          }}
        >
          {text}
        </a>
      )}
    </g>
  );
}
