import { X } from 'lucide-preact';
import { ComponentChildren } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { states, Tree } from '../api';
import { base } from '../base';
import { Icon, KindIcon } from '../icons';
import { Panel } from '../panel';
import { Brief, objectPath, Pill, Problem, Revision } from '../parts';
import { go, Link } from '../router';
import { themeChanged } from '../theme';
import { clusterNode, Picture as Content, Shown, size } from './fold';
import type { Layout } from './layout';
import LayoutWorker from './layout.worker?worker';
import { Door, hit, paint, prepare, readableZoom, readTheme, Scene, seen, Theme, titleOf, View, visible } from './paint';

const settleDelay = 150; // milliseconds without a move until what is in sight can be focused
const maxTargets = 300; // nodes that can be focused at a time; the table has all
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
  const shape = useMemo(() => of.nodes.map((n) => n.id).join() + of.edges.map((e) => e.from + e.to + e.relation).join(), [of]);
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
  const scene = useMemo(() => layout && prepare(layout, new Map(props.of.nodes.map((n) => [n.id, n]))), [layout, props.of]);
  if (error) {
    return <Problem error={error} />;
  }
  return layout && scene ? (
    <Canvas {...props} layout={layout} scene={scene} />
  ) : (
    <p class="quiet" role="status">
      Drawing {props.of.nodes.length} objects…
    </p>
  );
}

// usePainter draws the scene into a canvas, at most once a frame.
function usePainter(scene: Scene) {
  const view = useRef<HTMLDivElement>(null);
  const surface = useRef<HTMLCanvasElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const at = useRef<View>({ x: 0, y: 0, zoom: 1 });
  const theme = useRef<Theme>();
  const frame = useRef(0);
  const shown = useRef(scene);
  shown.current = scene;
  const draw = () => {
    frame.current = 0;
    const box = view.current;
    const canvas = surface.current;
    const context = canvas?.getContext('2d');
    if (!box || !canvas || !context || !content.current) {
      return;
    }
    theme.current ??= readTheme(box);
    const density = Math.min(2, window.devicePixelRatio || 1);
    const [width, height] = [box.clientWidth, box.clientHeight];
    if (canvas.width !== Math.round(width * density) || canvas.height !== Math.round(height * density)) {
      canvas.width = Math.round(width * density);
      canvas.height = Math.round(height * density);
    }
    paint(context, shown.current, theme.current, at.current, width, height, density);
    const { x, y, zoom } = at.current;
    content.current.style.transform = `translate(${x}px, ${y}px) scale(${zoom})`;
  };
  const request = () => {
    frame.current ||= requestAnimationFrame(draw);
  };
  useEffect(request, [scene]);
  useEffect(() => {
    const dark = window.matchMedia('(prefers-color-scheme: dark)');
    const repaint = () => {
      theme.current = undefined;
      request();
    };
    dark.addEventListener('change', repaint);
    window.addEventListener(themeChanged, repaint);
    const resized = new ResizeObserver(request);
    if (view.current) {
      resized.observe(view.current);
    }
    return () => {
      dark.removeEventListener('change', repaint);
      window.removeEventListener(themeChanged, repaint);
      resized.disconnect();
      cancelAnimationFrame(frame.current);
    };
  }, []);
  return { view, surface, content, at, request };
}

type CanvasProps = Props & { layout: Layout; scene: Scene };

// Canvas moves and zooms the picture. While it moves only pixels are drawn; what can be focused follows when it rests.
function Canvas(props: CanvasProps) {
  const { layout, scene } = props;
  const { view, surface, content, at, request } = usePainter(scene);
  const [rest, setRest] = useState<View>();
  const settle = useRef(0);
  const [chosen, setChosen] = useState<Shown>();
  const drag = useRef<{ x: number; y: number; startX: number; startY: number; moved: boolean } | null>(null);
  const move = (next: View) => {
    at.current = { ...next, zoom: Math.min(2, Math.max(0.1, next.zoom)) };
    request();
    window.clearTimeout(settle.current);
    settle.current = window.setTimeout(() => setRest(at.current), settleDelay);
  };
  // zoomBy keeps what is in the middle in the middle.
  const zoomBy = (factor: number) => {
    const { x, y, zoom } = at.current;
    const next = Math.min(2, Math.max(0.1, zoom * factor));
    const [middleX, middleY] = [(view.current?.clientWidth ?? 0) / 2, (view.current?.clientHeight ?? 0) / 2];
    move({ x: middleX - ((middleX - x) * next) / zoom, y: middleY - ((middleY - y) * next) / zoom, zoom: next });
  };
  const fit = () => {
    const width = view.current?.clientWidth ?? layout.width;
    move({ x: 0, y: 0, zoom: Math.min(1, Math.max(0.3, width / Math.max(layout.width, 1))) });
  };
  useEffect(() => {
    fit();
    setRest(at.current);
    return () => window.clearTimeout(settle.current);
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
  const nodeAt = (e: MouseEvent) => {
    const box = view.current?.getBoundingClientRect();
    return box && hit(scene, at.current, e.clientX - box.left, e.clientY - box.top);
  };
  const onMove = (e: PointerEvent) => {
    const from = drag.current;
    if (!from || !e.buttons) {
      const under = nodeAt(e);
      if (view.current) {
        view.current.title = under ? titleOf(under) : '';
      }
      return;
    }
    from.moved ||= Math.abs(e.clientX - from.startX) + Math.abs(e.clientY - from.startY) > dragThreshold;
    move({ ...at.current, x: e.clientX - from.x, y: e.clientY - from.y });
  };
  // onScroll turns what the browser scrolls to show a focused node into a move.
  const onScroll = () => {
    const box = view.current;
    if (box && (box.scrollLeft || box.scrollTop)) {
      move({ ...at.current, x: at.current.x - box.scrollLeft, y: at.current.y - box.scrollTop });
      box.scrollTo(0, 0);
    }
  };
  const onClick = (e: MouseEvent) => {
    const moved = drag.current?.moved;
    drag.current = null;
    if (moved) {
      e.preventDefault(); // the end of a move is no click
      e.stopPropagation();
      return;
    }
    const under = e.target === view.current || e.target === surface.current ? nodeAt(e) : undefined;
    if (under) {
      setChosen(under);
    }
  };
  return (
    <>
      <div class="buttons pad">
        <button class="small" onClick={fit}>Fit</button>
        <button class="small" onClick={() => zoomBy(1.2)}>Zoom in</button>
        <button class="small" onClick={() => zoomBy(1 / 1.2)}>Zoom out</button>
        <Legend />
      </div>
      <div
        ref={view}
        class="picture"
        tabIndex={0}
        role="group"
        aria-label="Picture of the graph: arrow keys move it, plus and minus zoom"
        onKeyDown={onKey}
        onScroll={onScroll}
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
        onClickCapture={onClick}
        onWheel={(e) => {
          if (e.ctrlKey || e.metaKey) {
            e.preventDefault();
            zoomBy(e.deltaY < 0 ? 1.1 : 1 / 1.1);
          }
        }}
      >
        <canvas ref={surface} aria-hidden="true" />
        <div ref={content} class="canvas">
          {rest && <Targets {...props} rest={rest} width={view.current?.clientWidth ?? 0} height={view.current?.clientHeight ?? 0} />}
        </div>
        {rest && view.current && <Minimap layout={layout} rest={rest} width={view.current.clientWidth} height={view.current.clientHeight} onMove={move} />}
      </div>
      {chosen && <Chosen key={chosen.id} of={chosen} onClose={() => setChosen(undefined)} />}
    </>
  );
}

// Legend says what lines and colours mean.
function Legend() {
  return (
    <span class="legend quiet">
      <i class="edge" /> comes from <i class="edge dashed" /> depends on <i class="edge dotted" /> notifies <i class="door" /> gate, closed <i class="door open" /> open
      {states.map((s) => (
        <>
          <span class={`dot ${s}`} aria-hidden="true" /> {s}
        </>
      ))}
    </span>
  );
}

// Chosen is the panel of a node: of an object that one of ours made, with what the cluster has; of ours, in short.
function Chosen({ of, onClose }: { of: Shown; onClose: () => void }) {
  if (of.made && !of.id.startsWith(clusterNode)) {
    return <Panel node={of.made} onClose={onClose} />;
  }
  const i = of.item;
  return (
    <aside class="panel" aria-label={of.id} onKeyDown={(e) => e.key === 'Escape' && onClose()}>
      <header>
        <span class="tile-icon">
          <KindIcon kind={i?.kind ?? 'Cluster'} />
        </span>
        <div>
          <strong>{i?.name ?? of.made?.name ?? of.id}</strong>
          <div class="quiet">{i ? `${i.kind} · ${i.namespace}` : of.made ? 'Cluster' : 'not there, or hidden from you'}</div>
        </div>
        <button class="ghost" aria-label="Close" onClick={onClose} ref={(b) => b?.focus()}>
          <Icon of={X} />
        </button>
      </header>
      {i && (
        <dl class="facts">
          <dt>State</dt>
          <dd>
            <Pill state={i.state} /> <Brief text={i.message} />
          </dd>
          {i.revision && (
            <>
              <dt>Revision</dt>
              <dd>
                <Revision of={i.revision} /> {i.subject}
              </dd>
            </>
          )}
        </dl>
      )}
      <div class="pad buttons">
        <Link class="button" to={of.made ? '/clusters' : objectPath(of.id)}>
          Open its page
        </Link>
      </div>
    </aside>
  );
}

const minimap = { width: 180, height: 110 }; // at most, in pixels

interface MinimapProps {
  layout: Layout;
  rest: View;
  width: number;
  height: number;
  onMove: (to: View) => void;
}

// Minimap shows where the part in sight is, unless that is everything. A click moves there. The keys of the picture do
// the same, so it is not read aloud.
function Minimap({ layout, rest, width, height, onMove }: MinimapProps) {
  const boxes = useMemo(() => layout.boxes.map((b) => `M${b.x} ${b.y}h${size.width}v${size.height}h${-size.width}z`).join(''), [layout]);
  if (layout.width * rest.zoom <= width && layout.height * rest.zoom <= height) {
    return null;
  }
  const scale = Math.min(minimap.width / layout.width, minimap.height / layout.height);
  const centre = (e: PointerEvent) => {
    e.stopPropagation(); // it is no move of the picture
    const box = (e.currentTarget as Element).getBoundingClientRect();
    const [x, y] = [(e.clientX - box.left) / scale, (e.clientY - box.top) / scale];
    onMove({ ...rest, x: width / 2 - x * rest.zoom, y: height / 2 - y * rest.zoom });
  };
  return (
    <svg class="minimap" width={layout.width * scale} height={layout.height * scale} viewBox={`0 0 ${layout.width} ${layout.height}`} aria-hidden="true"
      onPointerDown={centre}>
      <path d={boxes} />
      <rect x={-rest.x / rest.zoom} y={-rest.y / rest.zoom} width={width / rest.zoom} height={height / rest.zoom} vector-effect="non-scaling-stroke" />
    </svg>
  );
}

// Targets are what can be focused and read aloud of the nodes in sight. Their looks are drawn by the canvas below.
function Targets(props: CanvasProps & { rest: View; width: number; height: number }) {
  const { scene, rest, of, trees, folded } = props;
  const { boxes, doors } = visible(scene, seen(rest, props.width, props.height));
  if (boxes.length + doors.length > maxTargets) {
    return null;
  }
  const detailed = rest.zoom >= readableZoom;
  return (
    <svg width={props.layout.width} height={props.layout.height}>
      {boxes.map(({ of: shown, left, top }) => (
        <g key={shown.id} transform={`translate(${left} ${top})`}>
          <Target of={shown} />
          {detailed && (of.below.get(shown.id) ?? 0) > 0 && (
            <Toggle
              y={0}
              open={!folded.has(shown.id)}
              label={`what follows ${shown.id}`}
              title={folded.has(shown.id) ? `Show the ${of.below.get(shown.id)} that follow` : 'Hide what follows'}
              onToggle={() => props.toggle(shown.id)}
            />
          )}
          {detailed && (shown.item?.objects ?? 0) > 0 && (
            <Toggle
              y={size.height - 18}
              open={trees.has(shown.id)}
              label={`objects of ${shown.id}`}
              title={trees.has(shown.id) ? 'Hide its objects' : `Show its ${shown.item?.objects} objects`}
              onToggle={() => props.toggleObjects(shown.id)}
            />
          )}
        </g>
      ))}
      {doors.map((d) => (
        <g key={`door of ${d.left} ${d.top}`} transform={`translate(${d.left} ${d.top})`}>
          <DoorTarget of={d} />
        </g>
      ))}
    </svg>
  );
}

// DoorTarget leads to the gate, to the first closed one if there are more.
function DoorTarget({ of }: { of: Door }) {
  return (
    <g class="node">
      <PageOf id={of.first.id}>
        <title>{of.gates.map(titleOf).join('\n')}</title>
        <rect width={of.right - of.left} height={of.bottom - of.top} />
      </PageOf>
    </g>
  );
}

// PageOf links to the page of an object.
function PageOf({ id, children }: { id: string; children: ComponentChildren }) {
  return (
    <a
      href={base.pages + objectPath(id)}
      onClick={(e) => {
        e.preventDefault();
        go(objectPath(id));
      }}
    >
      {children}
    </a>
  );
}

function Target({ of }: { of: Shown }) {
  const area = (
    <>
      <title>{titleOf(of)}</title>
      <rect width={size.width} height={size.height} />
    </>
  );
  return <g class="node">{of.made ? area /* it has no page of its own */ : <PageOf id={of.id}>{area}</PageOf>}</g>;
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
