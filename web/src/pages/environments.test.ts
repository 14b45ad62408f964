import { expect, test } from 'vitest';
import { ChangeSet, Item } from '../api';
import { environments } from './environments';

const item = (namespace: string, at: string, cluster?: string) => ({ namespace, cluster, changed: at, since: at }) as Item;
const change = (c: Partial<ChangeSet>) => c as ChangeSet;

test('a revision is shown by namespace, with the worst that came of it', () => {
  const found = environments(change({ failed: [item('prod', '2')], live: [item('prod', '3'), item('dev', '1'), item('dev', '4')] }));
  expect(found).toEqual([
    { name: 'dev', state: 'ready', words: '2 applied', at: '4' },
    { name: 'prod', state: 'failed', words: '1 failed', at: '2' },
  ]);
});

test('a revision that goes to several clusters is shown by cluster', () => {
  const found = environments(change({ pending: [item('apps', '2', 'east')], live: [item('apps', '1')] }));
  expect(found.map((e) => `${e.name}: ${e.words}`)).toEqual(['east: 1 waiting', 'this cluster: 1 applied']);
});
