import { expect, test } from 'vitest';
import { Cluster, commitsOf, conditionOf, groupsBy, inbox, matches, merge, rollout, skews, Summary, versions, worstFirst } from './fleet';

const url = 'https://git.example/fleet';

function cluster(name: string, summary?: Partial<Summary>, more?: Partial<Cluster>): Cluster {
  return { name, status: 'Reporting', summary: summary && { time: '', version: 'v1', counts: { ready: 3 }, ...summary }, ...more };
}

// at returns a summary with a revision that all of its objects have, or that only some have.
function at(revision: string, hour: number, current = 4, applied?: string): Partial<Summary> {
  return {
    revisions: [{ source: 'GitRepository/flux-system/fleet', url, revision, subject: `Change ${revision}`, committed: `2026-11-29T0${hour}:00:00Z`, objects: 4, current,
      applied: applied ? [{ revision: applied, objects: 4 - current }] : undefined }],
  };
}

test('the worst clusters come first, and those of which nothing is known before all', () => {
  const all = [cluster('ok', {}), cluster('two', { counts: { failed: 2 } }), cluster('one', { counts: { failed: 1 } }), cluster('quiet', {}, { status: 'Silent' }),
    cluster('new', undefined, { status: 'Expected' }), cluster('gate', { counts: { waiting: 1, ready: 2 } }), cluster('wrong', {}, { refused: 'of the future' })];
  expect(worstFirst(all).map((c) => c.name)).toEqual(['quiet', 'wrong', 'two', 'one', 'gate', 'new', 'ok']);
  expect(conditionOf(cluster('paused', { counts: { suspended: 3 } }))).toBe('ready');
});

test('an answer with what changed is merged', () => {
  const known = [cluster('a', {}), cluster('b', {}), cluster('c', {})];
  const changed = merge(known, { version: '2', time: '', partial: true, clusters: [cluster('b', { version: 'v2' }), cluster('d', {})], removed: ['a'] });
  expect(changed.map((c) => `${c.name} ${c.summary?.version}`)).toEqual(['b v2', 'c v1', 'd v1']);
  expect(merge(known, { version: '3', time: '', clusters: [] })).toEqual([]);
});

test('clusters are grouped by a label, and found by their words', () => {
  const eu = cluster('a', {}, { labels: { region: 'eu' } });
  const other = cluster('b', { problems: [{ object: 'Kustomization/apps/web', state: 'failed', message: 'no such image' }] });
  expect(groupsBy([eu, other], 'region').map(([name, of]) => [name, of.length])).toEqual([['eu', 1], ['', 1]]);
  expect(matches(eu, 'region=eu')).toBe(true);
  expect(matches(other, 'IMAGE web')).toBe(true);
  expect(matches(eu, 'image')).toBe(false);
});

test('how far clusters are behind is counted in known revisions', () => {
  const all = [cluster('new', at('main@sha1:c', 9)), cluster('one', at('main@sha1:b', 8)), cluster('two', at('main@sha1:a', 6)), cluster('half', at('main@sha1:c', 9, 2, 'main@sha1:b')),
    cluster('other', {})];
  const [skew, ...rest] = skews(all);
  expect(rest).toEqual([]);
  expect(skew).toMatchObject({ total: 4, commits: 2, oldest: Date.parse('2026-11-29T06:00:00Z'), newest: { revision: 'main@sha1:c', subject: 'Change main@sha1:c' } });
  expect(skew?.behind.map((c) => c.name)).toEqual(['one', 'two', 'half']);
  expect(skews([cluster('a', at('main@sha1:c', 9)), cluster('b', at('main@sha1:c', 9))])).toEqual([]);
});

test('one commit is shown by stage, in the usual order', () => {
  const stage = (name: string) => ({ labels: { stage: name } });
  const gate = { gate: 'Gate/apps/release', object: 'Kustomization/apps/web', revision: 'main@sha1:c' };
  const all = [cluster('p1', { ...at('main@sha1:c', 9, 1), changes: [gate] }, stage('production')), cluster('p2', at('main@sha1:b', 8), stage('production')),
    cluster('s1', at('main@sha1:c', 9), stage('staging')), cluster('x', at('main@sha1:c', 9, 0), stage('zoo')),
    cluster('p3', { ...at('main@sha1:c', 9, 1), counts: { failed: 1 } }, stage('production')), cluster('none', {}, stage('staging'))];
  const commit = commitsOf(all).get(url)?.[0];
  const stages = commit ? rollout(all, commit, 'stage') : [];
  expect(stages.map((s) => [s.name, s.total])).toEqual([['staging', 1], ['production', 3], ['zoo', 1]]);
  expect(Object.keys(stages[1]?.by ?? {}).sort()).toEqual(['behind', 'failed', 'waiting']);
  expect(stages[2]?.by['rolling out']?.length).toBe(1);
  const older = commitsOf(all).get(url)?.[1];
  const before = older ? rollout(all, older, 'stage') : [];
  expect(Object.keys(before[0]?.by ?? {})).toEqual(['newer']);
  expect(Object.keys(before[1]?.by ?? {}).sort()).toEqual(['live', 'newer']);
});

test('the inbox has what waits in all clusters, the longest first', () => {
  const waits = (since: string) => ({ changes: [{ gate: 'Gate/apps/release', object: 'Kustomization/apps/web', revision: 'r', since }] });
  expect(inbox([cluster('a', waits('2026-11-29T09:00:00Z')), cluster('b', waits('2026-11-29T08:00:00Z'))]).map((i) => i.cluster.name)).toEqual(['b', 'a']);
});

test('versions are counted', () => {
  expect(versions([cluster('a', {}), cluster('b', {}), cluster('c', { version: 'v0' }), cluster('d')])).toEqual([['v1', 2], ['v0', 1]]);
});
