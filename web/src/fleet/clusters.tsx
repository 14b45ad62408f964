import { LayoutGrid, Server, Table2 } from 'lucide-preact';
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { path } from '../api';
import { useNow, useTitle } from '../hooks';
import { Icon } from '../icons';
import { Ago, Brief, Card, duration, Empty, Health, Heading, plural, Revision } from '../parts';
import { Link, Place, setQuery } from '../router';
import { useWindowRows } from '../virtual';
import { branchOf, Cluster, Condition, conditionOf, conditions, groupsBy, labelKeys, lookOf, matches, Skew, skews, versions, worstFirst } from './fleet';
import { ConditionPill, Labels, wordOf } from './parts';

// Clusters shows all clusters, the worst first, as a grid or a table.
export function Clusters({ place, clusters }: { place: Place; clusters: Cluster[] }) {
  useTitle('Clusters');
  const q = (key: string) => place.query.get(key) ?? '';
  const isTable = q('as') === 'table';
  const shown = useMemo(() => {
    const words = q('q').trim();
    const only = q('is');
    return worstFirst(clusters).filter((c) => (!only || conditionOf(c) === only) && (!words || matches(c, words)));
  }, [clusters, q('q'), q('is')]);
  const groups = groupsBy(shown, q('by'));
  return (
    <>
      <Heading title="Clusters" sub="what each reports about itself, the worst first">
        <span class="end switch" role="group" aria-label="Show as">
          <button aria-pressed={!isTable} onClick={() => setQuery(place, { as: '' })}>
            <Icon of={LayoutGrid} size={14} /> Grid
          </button>
          <button aria-pressed={isTable} onClick={() => setQuery(place, { as: 'table' })}>
            <Icon of={Table2} size={14} /> Table
          </button>
        </span>
      </Heading>
      <Tiles clusters={clusters} place={place} />
      <Skews clusters={clusters} />
      <Filters place={place} labels={labelKeys(clusters)} />
      <p class="quiet" role="status">
        {plural(shown.length, 'cluster')}
      </p>
      {shown.length === 0 && (
        <section class="card">
          <Empty icon={Server}>{clusters.length ? 'Nothing matches. Remove a filter.' : <>No cluster is registered. <code>sluice cluster join</code> registers one.</>}</Empty>
        </section>
      )}
      {groups.map(([name, of]) => (
        <section key={name} class={q('by') ? 'fleet-group' : undefined}>
          {q('by') && (
            <h2>
              {name || `without ${q('by')}`} <span class="quiet">{plural(of.length, 'cluster')}</span>
            </h2>
          )}
          {isTable ? <Rows clusters={of} group={name} /> : <Grid clusters={of} />}
        </section>
      ))}
    </>
  );
}

// Tiles counts clusters by their condition. A tile filters by it.
function Tiles({ clusters, place }: { clusters: Cluster[]; place: Place }) {
  const count = new Map<Condition, number>();
  clusters.forEach((c) => count.set(conditionOf(c), (count.get(conditionOf(c)) ?? 0) + 1));
  const tiles = conditions.filter((c) => count.get(c) || ['silent', 'failed', 'waiting', 'ready'].includes(c));
  return (
    <ul class="tiles">
      {tiles.map((c) => (
        <li>
          <button class="tile" aria-pressed={place.query.get('is') === c} onClick={() => setQuery(place, { is: place.query.get('is') === c ? '' : c })}>
            <span>
              <span class={`dot ${lookOf(c)}`} /> {wordOf(c)}
            </span>
            <div>
              <strong>{count.get(c) ?? 0}</strong>
            </div>
          </button>
        </li>
      ))}
    </ul>
  );
}

// Skews says how far clusters are behind, in revisions and in versions of Sluice.
function Skews({ clusters }: { clusters: Cluster[] }) {
  const behind = useMemo(() => skews(clusters), [clusters]);
  const all = versions(clusters);
  if (behind.length === 0 && all.length < 2) {
    return null;
  }
  return (
    <div class="grid two">
      <Card title="Revisions">
        {behind.length === 0 && <p class="pad quiet">Every cluster is at the newest revision of its sources.</p>}
        <ul class="plain rows">
          {behind.slice(0, 5).map((s) => (
            <OneSkew of={s} />
          ))}
        </ul>
      </Card>
      <Card title="Versions of Sluice" extra={all.length > 1 && <span class="quiet">{all.length} different</span>}>
        <ul class="plain rows">
          {all.slice(0, 5).map(([version, n]) => (
            <li class="line">
              <code>{version}</code> <span class="quiet">{plural(n, 'cluster')}</span>
            </li>
          ))}
        </ul>
      </Card>
    </div>
  );
}

function OneSkew({ of: s }: { of: Skew }) {
  const now = useNow();
  const age = s.oldest ? `, the oldest is of ${duration(Math.max(0, now - s.oldest))} ago` : '';
  return (
    <li>
      <p>
        <Link to={`/commits?revision=${encodeURIComponent(s.newest.revision)}`}>
          {plural(s.behind.length, 'cluster')} of {s.total} behind {branchOf(s.newest.revision)}
        </Link>{' '}
        by up to {plural(s.commits, 'known revision')}
        {age}
      </p>
      <div class="line quiet">
        <Revision of={s.newest.revision} /> <span class="long">{s.newest.subject}</span>
      </div>
      <div class="quiet long">{s.newest.source}</div>
    </li>
  );
}

function Filters({ place, labels }: { place: Place; labels: string[] }) {
  return (
    <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
      <label>
        <span class="visually-hidden">Search</span>
        <input type="search" class="wide" maxLength={200} value={place.query.get('q') ?? ''} placeholder="name, region=eu, version, commit"
          onInput={(e) => setQuery(place, { q: e.currentTarget.value })} />
      </label>
      <label>
        Group by
        <select value={place.query.get('by') ?? ''} onChange={(e) => setQuery(place, { by: e.currentTarget.value })}>
          <option value="">nothing</option>
          {labels.map((l) => (
            <option value={l}>{l}</option>
          ))}
        </select>
      </label>
    </form>
  );
}

const summary = (c: Cluster) => '/summary/' + path(c.name);

function Grid({ clusters }: { clusters: Cluster[] }) {
  return (
    <ul class="fleet">
      {clusters.map((c) => (
        <Cell key={c.name} of={c} />
      ))}
    </ul>
  );
}

function Cell({ of: c }: { of: Cluster }) {
  const condition = conditionOf(c);
  const n = c.summary?.counts[lookOf(condition)];
  const fact = condition === 'silent' || condition === 'refused' || condition === 'expected' ? wordOf(condition) : `${n ?? 0} ${condition}`;
  return (
    <li class={lookOf(condition)}>
      <Link to={summary(c)} title={`${c.name}: ${fact}`} data-row>
        <span class="name">{c.name}</span>
        <small>{fact}</small>
      </Link>
    </li>
  );
}

const rowHeight = 52; // pixels, before a row is measured
const allShown = 200; // rows; of longer tables, only those in sight exist

function Rows({ clusters, group }: { clusters: Cluster[]; group: string }) {
  const isLong = clusters.length > allShown;
  const body = useRef<HTMLTableSectionElement>(null);
  const [above, setAbove] = useState(0);
  useLayoutEffect(() => setAbove((body.current?.getBoundingClientRect().top ?? 0) + window.scrollY), [isLong]);
  const rows = useWindowRows(isLong ? clusters.length : 0, rowHeight, above);
  const sight = rows.getVirtualItems();
  const shown = isLong ? sight.map((v) => v.index) : clusters.map((_, i) => i);
  const gap = (height: number) => isLong && height > 0 && <tr aria-hidden="true" class="gap" style={{ height }} />;
  return (
    <div class="scroll card" tabIndex={0} role="region" aria-label={`Table of clusters ${group}`.trim()}>
      <table class="cards" aria-rowcount={isLong ? clusters.length + 1 : undefined}>
        <thead>
          <tr>
            <th>Cluster</th>
            <th>State</th>
            <th>Objects</th>
            <th>Revision</th>
            <th>Version</th>
            <th>Worst problem</th>
            <th>Heard of</th>
          </tr>
        </thead>
        <tbody ref={body}>
          {gap((sight[0]?.start ?? above) - above)}
          {shown.map((n) => {
            const c = clusters[n];
            return c && <Row key={c.name} of={c} index={isLong ? n : undefined} measure={isLong ? rows.measureElement : undefined} />;
          })}
          {gap(rows.getTotalSize() - ((sight[sight.length - 1]?.end ?? above) - above))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ of: c, index, measure }: { of: Cluster; index?: number; measure?: (row: HTMLElement | null) => void }) {
  const s = c.summary;
  const problem = s?.problems?.[0];
  return (
    <tr ref={measure} data-index={index} aria-rowindex={index === undefined ? undefined : index + 2}>
      <td>
        <Link to={summary(c)} class="name" data-row>
          {c.name}
        </Link>
        <div>
          <Labels of={c} />
        </div>
      </td>
      <td class="tight">
        <ConditionPill of={c} />
      </td>
      <td>{s && <Health counts={s.counts} />}</td>
      <td class="tight">{s?.revisions?.[0] && <Revision of={s.revisions[0].revision} />}</td>
      <td class="tight">{s?.version}</td>
      <td class="message">
        <span class="long">{c.refused ?? (problem && <>{problem.object}: <Brief text={problem.message} /></>)}</span>
      </td>
      <td class="tight">{c.received ? <Ago at={c.received} /> : 'never'}</td>
    </tr>
  );
}
