import { expect, test } from 'vitest';
import { Node } from './api';
import { flat, place } from './tree';

const node = (name: string, below: Node[] = [], status = 'Current', kind = 'ConfigMap'): Node => ({ kind, namespace: 'a', name, status, below });

test('leaves have a row each, and what made them stands in their middle', () => {
  const { leaves } = place(node('top', [node('one', [], 'Current', 'Service'), node('two')]), '');
  const y = new Map(leaves.map((l) => [l.node.name, l.y]));
  expect(y.get('top')).toBe(((y.get('one') ?? 0) + (y.get('two') ?? 0)) / 2);
  expect(y.get('one')).not.toBe(y.get('two'));
});

test('many healthy objects of a kind are one box, unless one is not healthy or a filter is set', () => {
  const many = (status: string) => node('top', Array.from({ length: 20 }, (_, i) => node(`c${i}`, [], i === 7 ? status : 'Current')));
  expect(place(many('Current'), '').leaves).toHaveLength(2);
  expect(place(many('Current'), '').leaves.find((l) => l.more)?.more).toBe(19);
  expect(place(many('Failed'), '').leaves).toHaveLength(21);
  expect(place(many('Current'), 'c7').leaves).toHaveLength(2);
  expect(flat([many('Current')])).toHaveLength(21);
});
