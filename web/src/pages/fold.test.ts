import { expect, test } from 'vitest';
import { Edge, Item } from '../api';
import { fold } from './fold';

const item = (id: string): Item => ({ id, kind: id.split('/')[0] ?? '', namespace: 'a', name: id, state: 'ready' });
const edge = (from: string, to: string, relation: Edge['relation'] = 'source'): Edge => ({ from, to, relation });
const graph = {
  nodes: ['repo', 'app', 'part', 'gate', 'other'].map(item),
  edges: [edge('repo', 'app'), edge('app', 'part', 'applied'), edge('gate', 'app', 'gate'), edge('repo', 'other')],
  omitted: 0,
};
const ids = (folded: string[]) => fold(graph, new Map(), new Set(folded)).nodes.map((n) => n.id).sort();

test('what follows a folded node is hidden', () => {
  expect(ids([])).toEqual(['app', 'other', 'part', 'repo']);
  expect(ids(['app'])).toEqual(['app', 'other', 'repo']);
  expect(ids(['repo'])).toEqual(['repo']);
  expect(fold(graph, new Map(), new Set()).below.get('repo')).toBe(2);
});

test('gates are doors in front of what they hold', () => {
  const shown = fold({ ...graph, nodes: [...graph.nodes, item('idle')] }, new Map(), new Set());
  expect(shown.nodes.find((n) => n.id === 'app')?.gates).toEqual([{ id: 'gate', item: item('gate') }]);
  expect(shown.nodes.map((n) => n.id)).toContain('idle');
  expect(shown.edges.filter((e) => e.relation === 'gate')).toEqual([]);
});

test('cycles without a beginning are shown', () => {
  const cycle = { nodes: ['a', 'b'].map(item), edges: [edge('a', 'b'), edge('b', 'a')], omitted: 0 };
  expect(fold(cycle, new Map(), new Set(['a'])).nodes).toHaveLength(2);
});

test('objects of a tree follow what made them', () => {
  const top = { kind: 'Kustomization', name: 'app', status: 'Current', below: [{ kind: 'Deployment', namespace: 'a', name: 'web', status: 'Current' }] };
  const shown = fold(graph, new Map([['app', { top, total: 2, omitted: 0 }]]), new Set());
  expect(shown.edges).toContainEqual(edge('app', 'Deployment/a/web', 'applied'));
});
