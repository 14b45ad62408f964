import { shortRevision } from '../parts';
import { Shown, size } from './fold';
import type { Layout } from './layout';

// View is the place of the picture: how far it is moved, in pixels, and how large it is drawn.
export interface View {
  x: number;
  y: number;
  zoom: number;
}

export const readableZoom = 0.4; // texts are drawn from here on

// Theme is the colours of the picture by name.
export type Theme = Record<string, string>;

const names = ['panel', 'text', 'quiet', 'line', 'edge', 'failed', 'waiting', 'progressing', 'suspended', 'ready'];

// readTheme returns the colours as the style of the page defines them, for light or dark.
export function readTheme(at: HTMLElement): Theme {
  const probe = document.createElement('i');
  at.append(probe);
  const theme: Theme = {};
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    theme[name] = getComputedStyle(probe).color;
  }
  theme.font = getComputedStyle(at).fontFamily;
  probe.remove();
  return theme;
}

// Looks of the states that objects in the cluster have.
const looks: Record<string, string> = { Current: 'ready', InProgress: 'progressing', Terminating: 'progressing', Failed: 'failed', NotFound: 'failed' };

// stateOf returns the state of a node in words.
export function stateOf({ item, made }: Shown): string {
  return item ? (item.gate ? (item.gate.open ? 'open' : 'closed') : item.state) : (made?.status ?? 'not found');
}

// titleOf describes a node.
export function titleOf(of: Shown): string {
  return `${of.id}: ${stateOf(of)}. ${of.item?.message ?? of.made?.message ?? ''}`;
}

function lookOf({ item, made }: Shown): string {
  if (item) {
    return item.gate && !item.gate.open ? 'waiting' : item.state;
  }
  return made ? (looks[made.status] ?? 'suspended') : 'failed';
}

const cut = (text: string, n: number) => (text.length > n ? text.slice(0, n - 1) + '…' : text);

interface Bounds {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

interface Box extends Bounds {
  of: Shown;
  look: string;
  missing: boolean;
  texts: [string, string, string];
}

// Door stands where all edges enter a box: the gates that hold it.
export interface Door extends Bounds {
  gates: Shown[];
  first: Shown; // a closed one, if there is one
  look: string;
  open: boolean;
  text: string;
}

interface Line extends Bounds {
  relation: string;
  points: { x: number; y: number }[];
}

// Scene is what the picture contains, prepared so that a frame is drawn without a search or a new object.
export interface Scene {
  boxes: Box[];
  doors: Door[];
  lines: Line[];
}

const isOpen = (gate: Shown) => !!gate.item?.gate?.open;

// doorOf returns the door in front of a box. Its edges pass between two posts, or meet a bar.
function doorOf(box: Bounds, gates: Shown[]): Door {
  const first = gates.find((g) => !isOpen(g)) ?? (gates[0] as Shown);
  const middle = (box.top + box.bottom) / 2;
  const [, , ...name] = first.id.split('/');
  return {
    gates,
    first,
    look: isOpen(first) ? 'ready' : lookOf(first),
    open: isOpen(first),
    text: gates.length > 1 ? `${gates.length} gates` : cut(name.join('/'), 10),
    left: box.left - 26,
    right: box.left - 14,
    top: middle - 16,
    bottom: middle + 16,
  };
}

// prepare returns the scene of nodes at their places. Nodes that have no place yet are left out.
export function prepare(layout: Layout, nodes: Map<string, Shown>): Scene {
  const boxes: Box[] = [];
  const doors: Door[] = [];
  for (const b of layout.boxes) {
    const of = nodes.get(b.id);
    if (of) {
      const [kind = '', namespace = '', ...rest] = b.id.split('/');
      const box: Box = {
        of,
        left: b.x,
        top: b.y,
        right: b.x + size.width,
        bottom: b.y + size.height,
        look: lookOf(of),
        missing: !of.item && !of.made,
        texts: [cut(`${kind} · ${stateOf(of)}`, 32), cut(rest.join('/'), 26), cut(`${namespace} ${shortRevision(of.item?.revision)}`, 32)],
      };
      boxes.push(box);
      if (of.gates?.length) {
        doors.push(doorOf(box, of.gates));
      }
    }
  }
  const lines = layout.lines.filter((l) => l.points.length > 1).map(({ relation, points }) => {
    const xs = points.map((p) => p.x);
    const ys = points.map((p) => p.y);
    return { relation, points, left: Math.min(...xs), top: Math.min(...ys), right: Math.max(...xs), bottom: Math.max(...ys) };
  });
  return { boxes, doors, lines };
}

// seen returns the part of the picture that a view of a size shows.
export function seen(view: View, width: number, height: number): Bounds {
  const left = -view.x / view.zoom;
  const top = -view.y / view.zoom;
  return { left, top, right: left + width / view.zoom, bottom: top + height / view.zoom };
}

const crosses = (a: Bounds, b: Bounds) => a.right >= b.left && a.left <= b.right && a.bottom >= b.top && a.top <= b.bottom;

// visible returns the boxes and doors in a part of the picture.
export function visible(scene: Scene, part: Bounds): { boxes: Box[]; doors: Door[] } {
  return { boxes: scene.boxes.filter((b) => crosses(b, part)), doors: scene.doors.filter((d) => crosses(d, part)) };
}

// hit returns the node at a point of the view.
export function hit(scene: Scene, view: View, x: number, y: number): Shown | undefined {
  const at = seen({ ...view, x: view.x - x, y: view.y - y }, 0, 0);
  return scene.doors.find((d) => crosses(d, at))?.first ?? scene.boxes.find((b) => crosses(b, at))?.of;
}

// paint draws what a view shows. Its work depends on what is in sight only.
export function paint(c: CanvasRenderingContext2D, scene: Scene, theme: Theme, view: View, width: number, height: number, density: number) {
  const scale = density * view.zoom;
  c.setTransform(1, 0, 0, 1, 0, 0);
  c.clearRect(0, 0, c.canvas.width, c.canvas.height);
  c.setTransform(scale, 0, 0, scale, density * view.x, density * view.y);
  const part = seen(view, width, height);
  const detailed = view.zoom >= readableZoom;
  paintLines(c, scene.lines.filter((l) => crosses(l, part)), theme, detailed);
  const { boxes, doors } = visible(scene, part);
  for (const b of boxes) {
    paintBox(c, b, theme, detailed);
  }
  for (const d of doors) {
    paintDoor(c, d, theme, detailed);
  }
}

const dashes: Record<string, number[]> = { dependsOn: [5, 4], notifies: [2, 3] };

function paintLines(c: CanvasRenderingContext2D, lines: Line[], theme: Theme, detailed: boolean) {
  const color = theme.edge ?? '';
  for (const relation of ['source', 'applied', 'dependsOn', 'notifies']) {
    const heads = new Path2D();
    c.beginPath();
    for (const l of lines) {
      if (l.relation !== relation) {
        continue;
      }
      curve(c, l.points);
      if (detailed) {
        head(heads, l.points);
      }
    }
    c.strokeStyle = color;
    c.lineWidth = 1.4;
    c.setLineDash((detailed && dashes[relation]) || []); // dashes that nobody can see cost the most
    c.stroke();
    c.fillStyle = color;
    c.fill(heads);
  }
  c.setLineDash([]);
}

// curve draws a line that leaves and enters its points level.
function curve(c: CanvasRenderingContext2D, points: { x: number; y: number }[]) {
  points.forEach((p, i) => {
    const last = points[i - 1];
    if (last) {
      const middle = (last.x + p.x) / 2;
      c.bezierCurveTo(middle, last.y, middle, p.y, p.x, p.y);
    } else {
      c.moveTo(p.x, p.y);
    }
  });
}

// head adds the head of an arrow at the end of a line.
function head(path: Path2D, points: { x: number; y: number }[]) {
  const [from, to] = points.slice(-2);
  if (!from || !to) {
    return;
  }
  const angle = to.x > from.x ? 0 : Math.PI; // as the curve ends
  const side = (turn: number) => [to.x - 8 * Math.cos(angle + turn), to.y - 8 * Math.sin(angle + turn)] as const;
  path.moveTo(to.x, to.y);
  path.lineTo(...side(0.4));
  path.lineTo(...side(-0.4));
  path.closePath();
}

function paintBox(c: CanvasRenderingContext2D, b: Box, theme: Theme, detailed: boolean) {
  const look = theme[b.look] ?? theme.line ?? '';
  c.fillStyle = theme.panel ?? '';
  c.strokeStyle = b.look === 'ready' && detailed ? (theme.line ?? '') : look;
  c.lineWidth = detailed ? 1.5 : 6; // colours must be seen from afar, too
  c.setLineDash(b.missing ? [4, 4] : []);
  c.beginPath();
  if (!detailed) {
    c.rect(b.left, b.top, size.width, size.height);
  } else {
    c.roundRect(b.left, b.top, size.width, size.height, 8);
  }
  c.fill();
  c.stroke();
  if (!detailed) {
    return;
  }
  c.fillStyle = look;
  c.beginPath();
  c.arc(b.left + 16, b.top + size.height / 2, 4.5, 0, 2 * Math.PI);
  c.fill();
  c.fillStyle = theme.text ?? '';
  c.font = `650 12.5px ${theme.font}`;
  c.fillText(b.texts[1], b.left + 30, b.top + 18);
  c.fillStyle = theme.quiet ?? '';
  c.font = `11px ${theme.font}`;
  c.fillText(b.texts[0], b.left + 30, b.top + 32);
  c.fillText(b.texts[2], b.left + 30, b.top + 45);
}

function paintDoor(c: CanvasRenderingContext2D, d: Door, theme: Theme, detailed: boolean) {
  const look = theme[d.look] ?? theme.line ?? '';
  const height = d.bottom - d.top;
  c.fillStyle = look;
  c.beginPath();
  if (d.open) {
    c.rect(d.left + 3, d.top, 6, height / 3);
    c.rect(d.left + 3, d.bottom - height / 3, 6, height / 3);
  } else {
    c.rect(d.left, d.top, d.right - d.left, height);
  }
  c.fill();
  if (detailed) {
    c.font = `10px ${theme.font}`;
    const width = c.measureText(d.text).width;
    c.fillStyle = theme.panel ?? ''; // edges of others pass here
    c.fillRect(d.right + 7 - width, d.bottom + 2, width + 1, 11);
    c.fillStyle = theme.quiet ?? '';
    c.textAlign = 'right';
    c.fillText(d.text, d.right + 8, d.bottom + 11);
    c.textAlign = 'left';
  }
}
