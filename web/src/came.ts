import { Gate, Item, State } from './api';

// Came is what came of a decision about a change.
export interface Came {
  state: State;
  word: string;
  text?: string;
}

// came returns what came of a decision about a change: it still waits, was let through, or was applied.
export function came(item: Item, revision: string, waits: boolean, gate?: Gate): Came {
  if (waits && item.pending) {
    const needed = gate?.rules?.find((r) => !!r.required)?.required ?? gate?.required ?? 0;
    const approved = gate?.approved ?? 0;
    return needed > 0 ? { state: 'waiting', word: `${Math.min(approved, needed)} of ${needed}`, text: 'approvals' } : { state: 'waiting', word: 'waits' };
  }
  if (item.revision !== revision) {
    return item.state === 'failed' ? { state: 'failed', word: 'failed', text: item.message } : { state: 'progressing', word: 'let through', text: item.message };
  }
  return item.state === 'ready' ? { state: 'ready', word: 'applied' } : { state: item.state, word: item.state === 'progressing' ? 'applied, health is checked' : item.state, text: item.message };
}
