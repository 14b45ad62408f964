import { expect, test } from 'vitest';
import { size } from './fold';
import { place } from './layout';

test('nodes are in layers, and edges pass no box', () => {
  const nodes = ['source', 'a', 'b', 'c', 'end'];
  const edges = [['source', 'a'], ['a', 'b'], ['b', 'c'], ['c', 'end'], ['source', 'end']].map(([from = '', to = '']) => ({ from, to, relation: 'source' }));
  const layout = place({ nodes, edges });
  const at = new Map(layout.boxes.map((b) => [b.id, b]));
  const x = nodes.map((id) => at.get(id)?.x ?? 0);
  expect(x).toEqual([...x].sort((p, q) => p - q));
  const long = layout.lines.find((l) => l.from === 'source' && l.to === 'end')?.points ?? [];
  for (const [i, p] of long.entries()) {
    const q = long[i + 1];
    for (const b of layout.boxes.filter((b) => q && !['source', 'end'].includes(b.id))) {
      for (let t = 0; q && t <= 1; t += 0.05) {
        const [px, py] = [p.x + (q.x - p.x) * t, p.y + (q.y - p.y) * t];
        const inside = px > b.x && px < b.x + size.width && py > b.y && py < b.y + size.height;
        expect(inside, `${px},${py} is behind ${b.id}`).toBe(false);
      }
    }
  }
});
