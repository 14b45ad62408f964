import { Pending } from '../api';
import { Ago, Brief, DiffText, Revision, shortRevision } from '../parts';

// PendingChange shows what would change if the gate opened.
export function PendingChange({ pending, why }: { pending: Pending; why?: string }) {
  return (
    <div class="card">
      <p>
        <strong>Waits at a gate:</strong> <Revision of={pending.revision} /> since <Ago at={pending.since} />:{' '}
        {pending.created ?? 0} created, {pending.configured ?? 0} configured, {pending.deleted ?? 0} deleted{' '}
        <Risk level={pending.risk} />
      </p>
      {why && (
        <p>
          <Brief text={why} />
        </p>
      )}
      {pending.message && <p>{pending.message}</p>}
      <ul class="changes">
        {(pending.changes ?? []).map((c) => (
          <li class={c.endsWith('deleted') ? 'deleted' : ''}>{c}</li>
        ))}
      </ul>
      {pending.images && <p>Images: {pending.images.join(', ')}</p>}
      {pending.diff && (
        <details>
          <summary>What changes in objects that exist</summary>
          <DiffText label="What changes in objects that exist">{pending.diff}</DiffText>
        </details>
      )}
      {pending.change && (
        <p class="quiet">
          Change <code title={pending.change}>{shortRevision(pending.change)}</code>: a decision is about this change only.
        </p>
      )}
    </div>
  );
}

// Risk shows the risk of a change by word and symbol.
export function Risk({ level }: { level?: string }) {
  const looks: Record<string, string> = { low: 'ready', medium: 'waiting', high: 'failed' };
  const marks: Record<string, string> = { low: '▁', medium: '▄', high: '█' };
  return level ? (
    <span class={`badge ${looks[level] ?? 'waiting'}`}>
      <span aria-hidden="true">{marks[level]}</span> {level} risk
    </span>
  ) : null;
}
