import { ChangeSet, Item, State } from '../api';

// Environment is a cluster or a namespace that a revision goes to.
export interface Environment {
  name: string;
  state: State;
  words: string;
  at?: string; // of the last change
}

// environments returns where a revision goes: the clusters, or the namespaces if all is in one cluster.
export function environments(c: ChangeSet): Environment[] {
  const rows: [Item, State, string][] = [
    ...(c.failed ?? []).map((i): [Item, State, string] => [i, 'failed', 'failed']),
    ...(c.pending ?? []).map((i): [Item, State, string] => [i, 'waiting', 'waiting']),
    ...(c.live ?? []).map((i): [Item, State, string] => [i, 'ready', 'applied']),
  ];
  const clusters = new Set(rows.map(([i]) => i.cluster ?? ''));
  const found = new Map<string, { state: State; words: string; count: number; at?: string }>();
  for (const [i, state, words] of rows) {
    const name = clusters.size > 1 ? (i.cluster ?? 'this cluster') : i.namespace;
    const at = state === 'ready' ? i.changed : i.since;
    const known = found.get(name);
    if (!known) {
      found.set(name, { state, words, count: 1, at });
    } else if (known.words === words) {
      known.count++;
      known.at = at && (!known.at || at > known.at) ? at : known.at;
    }
  }
  return [...found].map(([name, e]) => ({ name, state: e.state, words: `${e.count} ${e.words}`, at: e.at })).sort((a, b) => a.name.localeCompare(b.name));
}
