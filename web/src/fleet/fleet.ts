// What the pages of a hub show, from the clusters that internal/fleet describes. All of it is computed in the browser.
import { Counts, State, states } from '../api';

export interface Applied {
  revision: string;
  subject?: string;
  objects: number;
}

// Revision is the revision of a source, and how far it has come in a cluster.
export interface Revision {
  source: string;
  url?: string;
  revision: string;
  subject?: string;
  author?: string;
  committed?: string;
  fetched?: string;
  objects: number;
  current: number;
  since?: string;
  applied?: Applied[];
}

export interface Problem {
  object: string;
  state: State;
  reason?: string;
  message?: string;
  since?: string;
  affected?: number;
}

// Waits is a change that waits at a gate of a cluster.
export interface Waits {
  gate: string;
  object: string;
  revision: string;
  digest?: string;
  risk?: string;
  message?: string;
  since?: string;
  until?: string;
  required?: number;
  approved?: number;
  users?: string[];
  groups?: string[];
}

export interface Summary {
  time: string;
  version: string;
  kubernetes?: string;
  counts: Counts;
  kinds?: Record<string, Counts>;
  revisions?: Revision[];
  problems?: Problem[];
  changes?: Waits[];
  omitted?: { revisions?: number; problems?: number; changes?: number };
}

export interface Cluster {
  name: string;
  labels?: Record<string, string>;
  status: 'Reporting' | 'Silent' | 'Expected';
  received?: string;
  skew?: number;
  linked?: boolean;
  refused?: string;
  summary?: Summary;
}

export interface List {
  version: string;
  time: string;
  partial?: boolean;
  clusters: Cluster[];
  removed?: string[];
}

// merge returns the clusters after an answer that has all, or only what changed.
export function merge(known: Cluster[], answer: List): Cluster[] {
  if (!answer.partial) {
    return answer.clusters;
  }
  const all = new Map(known.map((c) => [c.name, c]));
  answer.removed?.forEach((name) => all.delete(name));
  answer.clusters.forEach((c) => all.set(c.name, c));
  return [...all.values()];
}

// Condition is how a cluster is: the worst state of its objects, unless the hub does not know.
export type Condition = 'silent' | 'refused' | 'expected' | State;

export const conditions: Condition[] = ['silent', 'refused', 'failed', 'waiting', 'progressing', 'expected', 'suspended', 'ready'];

export function conditionOf(c: Cluster): Condition {
  if (c.status === 'Silent') {
    return 'silent';
  }
  if (c.refused) {
    return 'refused';
  }
  if (c.status === 'Expected' || !c.summary) {
    return 'expected';
  }
  const counts = c.summary.counts;
  return states.find((s) => s !== 'suspended' && s !== 'ready' && counts[s]) ?? 'ready';
}

// lookOf returns the state whose colour and icon a condition has.
export function lookOf(c: Condition): State {
  return c === 'silent' || c === 'refused' ? 'failed' : c === 'expected' ? 'suspended' : c;
}

// worstFirst sorts clusters: first those of which nothing is known, then those where most objects fail.
export function worstFirst(clusters: Cluster[]): Cluster[] {
  const rank = (c: Cluster) => conditions.indexOf(conditionOf(c));
  const failed = (c: Cluster) => c.summary?.counts.failed ?? 0;
  return [...clusters].sort((a, b) => rank(a) - rank(b) || failed(b) - failed(a) || a.name.localeCompare(b.name));
}

export function labelKeys(clusters: Cluster[]): string[] {
  return [...new Set(clusters.flatMap((c) => Object.keys(c.labels ?? {})))].sort();
}

// groupsBy returns clusters by the value of a label, in the order of the first; all in one group without a label.
export function groupsBy(clusters: Cluster[], label: string): [string, Cluster[]][] {
  const groups = new Map<string, Cluster[]>();
  for (const c of clusters) {
    const value = label ? (c.labels?.[label] ?? '') : '';
    groups.set(value, [...(groups.get(value) ?? []), c]);
  }
  return [...groups];
}

// matches reports whether a cluster has all words in its name, labels, versions, revisions or problem.
export function matches(c: Cluster, words: string): boolean {
  const labels = Object.entries(c.labels ?? {}).map(([k, v]) => `${k}=${v}`);
  const text = [c.name, ...labels, c.summary?.version, c.summary?.kubernetes, c.summary?.problems?.[0]?.object, c.summary?.problems?.[0]?.message,
    ...(c.summary?.revisions ?? []).map((r) => `${r.revision} ${r.subject ?? ''}`)].join(' ').toLowerCase();
  return words.toLowerCase().split(/\s+/).every((w) => text.includes(w));
}

// Commit is a revision of a source that some cluster has, with all that is known of it.
export interface Commit {
  source: string; // what clusters share: the URL, or else the object
  revision: string;
  subject?: string;
  author?: string;
  at: number; // when it was committed, or else first fetched, in milliseconds; 0 if neither is known
}

const sourceOf = (r: Revision) => r.url || r.source;

// commitsOf returns the revisions of all sources, the newest of each source first. Revisions that clusters apply, but of
// which no cluster says when they are from, are older than the others.
export function commitsOf(clusters: Cluster[]): Map<string, Commit[]> {
  const found = new Map<string, Map<string, Commit>>();
  const add = (source: string, c: Commit) => {
    const of = found.get(source) ?? new Map<string, Commit>();
    found.set(source, of);
    const known = of.get(c.revision);
    of.set(c.revision, { ...c, ...known, subject: known?.subject || c.subject, author: known?.author || c.author, at: known?.at && c.at ? Math.min(known.at, c.at) : known?.at || c.at });
  };
  for (const c of clusters) {
    for (const r of c.summary?.revisions ?? []) {
      const source = sourceOf(r);
      add(source, { source, revision: r.revision, subject: r.subject, author: r.author, at: timeOf(r) });
      r.applied?.forEach((a) => add(source, { source, revision: a.revision, subject: a.subject, at: 0 }));
    }
  }
  return new Map([...found].map(([source, of]) => [source, [...of.values()].sort((a, b) => b.at - a.at)]));
}

// Progress is how far a revision is in a cluster.
export type Progress = 'live' | 'newer' | 'waiting' | 'rolling out' | 'failed' | 'behind';

export const progresses: Progress[] = ['live', 'newer', 'rolling out', 'waiting', 'failed', 'behind'];

// has reports whether a cluster has what a commit brought, by itself or in a later one.
export const has = (p: Progress) => p === 'live' || p === 'newer';

// timeOf returns when a revision was committed, or else fetched, in milliseconds; 0 if neither is known.
const timeOf = (r: Revision) => Date.parse(r.committed || r.fetched || '') || 0;

// progressIn returns how far a revision is in a cluster; undefined if the cluster does not have its source.
export function progressIn(c: Cluster, commit: Commit): Progress | undefined {
  const r = (c.summary?.revisions ?? []).find((r) => sourceOf(r) === commit.source);
  if (!r) {
    return undefined;
  }
  if (r.revision !== commit.revision) {
    return timeOf(r) > commit.at ? 'newer' : 'behind';
  }
  if (r.current >= r.objects) {
    return 'live';
  }
  if (c.summary?.changes?.some((w) => w.revision === commit.revision)) {
    return 'waiting';
  }
  return c.summary?.counts.failed ? 'failed' : 'rolling out';
}

// Stage is how far a revision is in the clusters with one value of a label.
export interface Stage {
  name: string;
  total: number;
  by: Partial<Record<Progress, Cluster[]>>;
}

const order = ['dev', 'development', 'test', 'qa', 'staging', 'stage', 'canary', 'prod', 'production'];

// rollout returns how far a revision is, by the value of a label. Usual names of stages are in their usual order.
export function rollout(clusters: Cluster[], commit: Commit, label: string): Stage[] {
  const stages = new Map<string, Stage>();
  for (const c of clusters) {
    const progress = progressIn(c, commit);
    if (!progress) {
      continue;
    }
    const name = c.labels?.[label] ?? '';
    const stage = stages.get(name) ?? { name, total: 0, by: {} };
    stages.set(name, stage);
    stage.total++;
    (stage.by[progress] ??= []).push(c);
  }
  const rank = (s: Stage) => (order.indexOf(s.name) + order.length + 1) % (order.length + 1); // unknown names last
  return [...stages.values()].sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
}

// Skew is how far clusters are behind the newest revision of a source.
export interface Skew {
  newest: Commit;
  total: number; // clusters with the source
  behind: Cluster[];
  commits: number; // newer known revisions than that of the cluster that is most behind
  oldest: number; // when that revision is from, in milliseconds; 0 if it is not known
}

// skews returns the sources of which clusters have different revisions, the most clusters behind first.
export function skews(clusters: Cluster[]): Skew[] {
  const found: Skew[] = [];
  for (const [source, commits] of commitsOf(clusters)) {
    const newest = commits[0];
    if (!newest) {
      continue;
    }
    const skew: Skew = { newest, total: 0, behind: [], commits: 0, oldest: 0 };
    for (const c of clusters) {
      const r = (c.summary?.revisions ?? []).find((r) => sourceOf(r) === source);
      if (!r) {
        continue;
      }
      skew.total++;
      const runs = r.current < r.objects && r.applied?.length ? r.applied.map((a) => a.revision) : [r.revision];
      const at = Math.max(...runs.map((v) => commits.findIndex((k) => k.revision === v)));
      if (at > 0) {
        skew.behind.push(c);
        if (at > skew.commits) {
          skew.commits = at;
          skew.oldest = commits[at]?.at ?? 0;
        }
      }
    }
    if (skew.behind.length > 0) {
      found.push(skew);
    }
  }
  return found.sort((a, b) => b.behind.length - a.behind.length);
}

// versions returns how many clusters run each version of Sluice, the most first.
export function versions(clusters: Cluster[]): [string, number][] {
  const count = new Map<string, number>();
  for (const c of clusters) {
    const version = c.summary?.version;
    if (version) {
      count.set(version, (count.get(version) ?? 0) + 1);
    }
  }
  return [...count].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
}

export interface Inbox {
  cluster: Cluster;
  change: Waits;
}

// inbox returns what waits at gates of all clusters, the longest first.
export function inbox(clusters: Cluster[]): Inbox[] {
  return clusters
    .flatMap((cluster) => (cluster.summary?.changes ?? []).map((change) => ({ cluster, change })))
    .sort((a, b) => (a.change.since ?? '').localeCompare(b.change.since ?? '') || a.cluster.name.localeCompare(b.cluster.name));
}

// branchOf returns the branch or tag in a revision such as main@sha1:….
export function branchOf(revision: string): string {
  return revision.includes('@') ? revision.slice(0, revision.indexOf('@')) : revision;
}
