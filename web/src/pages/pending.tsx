import { TriangleAlert } from 'lucide-preact';
import { Pending, State } from '../api';
import { Icon } from '../icons';
import { Ago, Brief, DiffText, Revision, shortRevision } from '../parts';

// PendingChange shows what would change if the gate opened.
export function PendingChange({ pending, why }: { pending: Pending; why?: string }) {
  return (
    <section class="card">
      <header>
        <strong>Pending change</strong> <Revision of={pending.revision} />
        <span class="quiet">
          waits at a gate since <Ago at={pending.since} />: {pending.created ?? 0} created, {pending.configured ?? 0} configured,{' '}
          {pending.deleted ?? 0} deleted
        </span>
        <span class="end">
          <Risk level={pending.risk} />
        </span>
      </header>
      {(why || pending.message) && (
        <div class="pad">
          {why && (
            <p>
              <Brief text={why} />
            </p>
          )}
          {pending.message && <p>{pending.message}</p>}
        </div>
      )}
      {!!pending.changes?.length && (
        <ul class="changes" tabIndex={0} aria-label="Objects that would change">
          {pending.changes.map((c) => (
            <li class={c.endsWith('deleted') ? 'deleted' : ''}>{c}</li>
          ))}
        </ul>
      )}
      {pending.images && <p class="pad">Images: {pending.images.join(', ')}</p>}
      {pending.diff && <DiffText label="What changes in objects that exist">{pending.diff}</DiffText>}
      {pending.change && (
        <p class="quiet pad">
          Change <code title={pending.change}>{shortRevision(pending.change)}</code>: a decision is about this change only.
        </p>
      )}
    </section>
  );
}

const looks: Record<string, State> = { low: 'ready', medium: 'waiting', high: 'failed' };

// Risk shows the risk of a change by word, icon and colour.
export function Risk({ level }: { level?: string }) {
  return level ? (
    <span class={`ink-${looks[level] ?? 'waiting'}`}>
      <Icon of={TriangleAlert} size={14} /> {level} risk
    </span>
  ) : null;
}
