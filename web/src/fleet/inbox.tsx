import { ShieldCheck } from 'lucide-preact';
import { useTitle } from '../hooks';
import { Icon, KindIcon } from '../icons';
import { objectPath, Ago, Brief, Empty, Heading, plural, Revision } from '../parts';
import { Risk } from '../pages/pending';
import { Place, setQuery } from '../router';
import { Cluster, inbox, Inbox as Entry } from './fleet';
import { InCluster } from './parts';

const shown = 200;

// Inbox lists what waits at gates of all clusters. Who decides does so in the cluster, in their own name.
export function Inbox({ place, clusters }: { place: Place; clusters: Cluster[] }) {
  useTitle('Gates');
  const words = (place.query.get('q') ?? '').toLowerCase().split(/\s+/);
  const all = inbox(clusters).filter(({ cluster, change }) => {
    const text = [cluster.name, ...Object.values(cluster.labels ?? {}), change.gate, change.object, change.revision, ...(change.users ?? []), ...(change.groups ?? [])].join(' ').toLowerCase();
    return words.every((w) => text.includes(w));
  });
  const omitted = clusters.reduce((n, c) => n + (c.summary?.omitted?.changes ?? 0), 0);
  return (
    <>
      <Heading title="Gates" sub="what waits in all clusters, the longest first" />
      <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
        <label>
          <span class="visually-hidden">Search</span>
          <input type="search" class="wide" maxLength={200} value={place.query.get('q') ?? ''} placeholder="cluster, gate, object, revision, approver"
            onInput={(e) => setQuery(place, { q: e.currentTarget.value })} />
        </label>
      </form>
      <p class="quiet" role="status">
        {plural(all.length, 'change waits', 'changes wait')}
        {omitted > 0 && `; ${omitted} more are only in their clusters`}
      </p>
      <section class="card">
        {all.length === 0 && <Empty icon={ShieldCheck}>Nothing waits at a gate.</Empty>}
        <ul class="plain rows">
          {all.slice(0, shown).map((e) => (
            <One key={`${e.cluster.name} ${e.change.gate} ${e.change.object} ${e.change.revision}`} of={e} />
          ))}
        </ul>
      </section>
      {all.length > shown && <p class="quiet">{all.length - shown} more: search for a cluster or a gate.</p>}
    </>
  );
}

export function One({ of: { cluster, change: c } }: { of: Entry }) {
  const gate = c.gate.split('/').slice(1);
  const who = [...(c.users ?? []), ...(c.groups ?? []).map((g) => `group ${g}`)];
  return (
    <li class="bar-left waiting">
      <div class="line">
        <Icon of={ShieldCheck} /> <strong>{cluster.name}</strong>
        <KindIcon kind={c.object.split('/')[0] ?? ''} /> <span class="long">{c.object}</span> <Revision of={c.revision} /> <Risk level={c.risk} />
        <span class="end">
          <Ago at={c.since} />
        </span>
      </div>
      <p class="clamp">
        <Brief text={c.message} />
      </p>
      <div class="line">
        <span class="quiet">
          {gate.join('/')}
          {!!c.required && ` · ${c.approved ?? 0} of ${plural(c.required, 'approval')}`}
          {who.length > 0 && ` · may approve: ${who.join(', ')}`}
          {c.until && (
            <>
              {' '}
              · opens by itself <Ago at={c.until} />
            </>
          )}
        </span>
        <span class="end">
          {cluster.linked ? (
            <InCluster of={cluster} class="button" to={`${objectPath(c.gate)}${c.required ? '?ask=approve' : ''}`}>
              Review in the cluster
            </InCluster>
          ) : (
            <span class="quiet">
              no stream: run <code>sluice gate {c.required ? 'approve' : 'open'} {gate[1]} -n {gate[0]}</code> in the cluster
            </span>
          )}
        </span>
      </div>
    </li>
  );
}
