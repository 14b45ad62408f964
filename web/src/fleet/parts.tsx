import { CircleHelp, Unplug } from 'lucide-preact';
import { ComponentChildren } from 'preact';
import { Icon } from '../icons';
import { path } from '../api';
import { Pill } from '../parts';
import { Cluster, Condition, conditionOf, lookOf } from './fleet';

const words: Partial<Record<Condition, string>> = { refused: 'report refused', expected: 'never reported' };

export function wordOf(c: Condition): string {
  return words[c] ?? c;
}

// ConditionPill shows how a cluster is. Of one that is silent, nothing newer is known.
export function ConditionPill({ of }: { of: Cluster }) {
  const c = conditionOf(of);
  if (c === 'silent' || c === 'expected') {
    return (
      <span class={`pill ${lookOf(c)}`}>
        <Icon of={c === 'silent' ? Unplug : CircleHelp} size={13} /> {wordOf(c)}
      </span>
    );
  }
  return <Pill state={lookOf(c)}>{wordOf(c)}</Pill>;
}

// InCluster leads to a page of the UI of a cluster, through its stream; without one it is text.
export function InCluster({ of, to, class: look, children }: { of: Cluster; to: string; class?: string; children: ComponentChildren }) {
  return of.linked ? (
    <a class={look} href={`/clusters/${path(of.name)}${to}`}>
      {children}
    </a>
  ) : (
    <span>{children}</span>
  );
}

// Labels shows the labels of a cluster.
export function Labels({ of }: { of: Cluster }) {
  return (
    <span class="line">
      {Object.entries(of.labels ?? {}).map(([k, v]) => (
        <span class="count">
          {k}={v}
        </span>
      ))}
    </span>
  );
}
