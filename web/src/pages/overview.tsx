import { ArrowRight, CircleHelp, GitCompareArrows, RotateCw, Shield } from 'lucide-preact';
import { useEffect, useState } from 'preact/hooks';
import { act, Change, ChangePage, ChangeSet, Group, Overview as Data, Page, Problem as Cause, Processes, State, states } from '../api';
import { Loaded, useData, useTitle } from '../hooks';
import { Icon, KindIcon, StateIcon } from '../icons';
import { Ago, Author, Brief, Card, Dot, Empty, Health, Heading, Loading, ObjectLink, ObjectName, Pill, plural, Problem, Revision } from '../parts';
import { Link } from '../router';
import { Table } from './applications';

const shownChanges = 6;
const shownApplications = 12;

// Overview shows the health of everything, and what to look at first.
export function Overview({ loaded }: { loaded: Loaded<Data> }) {
  useTitle('Overview');
  const { data, error } = loaded;
  return (
    <>
      <Heading title="Overview" />
      <Problem error={error} />
      {data ? (
        <>
          <Tiles data={data} />
          <div class="grid two">
            <div>
              <NeedsYou data={data} />
              <Controllers />
            </div>
            <Deployments />
          </div>
          <Applications data={data} />
          <div class="grid three">
            <Groups title="By namespace" groups={data.byNamespace} to={(n) => `/objects?namespace=${encodeURIComponent(n)}`} />
            <Groups title="By kind" groups={data.byKind} to={(n) => `/objects?kind=${encodeURIComponent(n)}`} />
            <Groups title="By source" groups={data.bySource} to={(n) => `/graph?root=${encodeURIComponent(n)}`} />
          </div>
        </>
      ) : (
        <Loading error={error} />
      )}
    </>
  );
}

function Tiles({ data }: { data: Data }) {
  const ready = data.counts.ready ?? 0;
  const facts: Record<State, string> = {
    failed: data.problems.length ? plural(data.problems.length, 'cause') : 'nothing fails',
    waiting: data.atGates ? `${data.atGates} at gates` : 'nothing waits',
    progressing: 'rolling out',
    suspended: 'by somebody',
    ready: data.total ? `${((100 * ready) / data.total).toFixed(1)} %` : '',
  };
  return (
    <ul class="tiles">
      {states.map((s) => (
        <li>
          <Link to={`/objects?state=${s}`} class="tile">
            <StateIcon state={s} size={16} />
            {s[0]?.toUpperCase() + s.slice(1)}
            <div>
              <strong>{data.counts[s] ?? 0}</strong> <span class="quiet">{facts[s]}</span>
            </div>
          </Link>
        </li>
      ))}
    </ul>
  );
}

// NeedsYou lists what a person should look at, first cause first, then what waits at gates.
function NeedsYou({ data }: { data: Data }) {
  return (
    <Card title="Needs you" extra={<span class="quiet">first cause first</span>}>
      {data.problems.length === 0 && data.atGates === 0 && <Empty>Nothing fails, and nothing waits for an approval.</Empty>}
      <ul class="plain rows">
        {data.problems.map((p) => (
          <Needed key={p.item.id} cause={p} />
        ))}
        {data.atGates > 0 && (
          <li class="bar-left waiting">
            <div class="line">
              <Icon of={Shield} />
              <strong>{plural(data.atGates, 'change waits', 'changes wait')} at gates</strong>
              <span class="end">
                <Link to="/gates" class="button primary">
                  Review
                </Link>
              </span>
            </div>
          </li>
        )}
      </ul>
    </Card>
  );
}

function Needed({ cause: { item, count, dependents } }: { cause: Cause }) {
  return (
    <li class={`bar-left ${item.state}`}>
      <div class="line">
        <ObjectName id={item.id} />
        <Pill state={item.state} />
        <span class="end">
          <Ago at={item.since} />
        </span>
      </div>
      <p class="clamp">
        <Brief text={item.message} />
      </p>
      <div class="buttons">
        <Retry id={item.id} />
        <Link to={'/why?q=' + encodeURIComponent(item.id)} class="button">
          <Icon of={CircleHelp} /> Why?
        </Link>
        {count > 0 && (
          <details>
            <summary>
              blocks {plural(count, 'object')}
            </summary>
            <ul>
              {(dependents ?? []).map((id) => (
                <li>
                  <ObjectLink id={id} />
                </li>
              ))}
            </ul>
          </details>
        )}
      </div>
    </li>
  );
}

// Retry lets the controllers try an object again at once, and says what came of the request.
function Retry({ id }: { id: string }) {
  const [said, setSaid] = useState('');
  const retry = () => {
    setSaid('Requested.');
    act(id, 'retry', {}).catch((e: Error) => setSaid(e.message));
  };
  return (
    <>
      <button onClick={retry} disabled={said === 'Requested.'} aria-label={`Retry ${id}`}>
        <Icon of={RotateCw} /> Retry
      </button>
      {said && (
        <span role="status" class="quiet">
          {said}
        </span>
      )}
    </>
  );
}

const processesInterval = 15_000; // milliseconds

// Controllers are the processes that do all this: who leads, how many run, and what waits for them.
function Controllers() {
  const { data, error, reload } = useData<Processes>('processes', () => false);
  useEffect(() => {
    const timer = window.setInterval(reload, processesInterval);
    return () => window.clearInterval(timer);
  }, []);
  if (!data) {
    return (
      <Card title="Controllers">
        <div class="pad">
          <Loading error={error} />
        </div>
      </Card>
    );
  }
  return (
    <Card title="Controllers">
      <dl class="facts">
        {data.deployments.map((d) => (
          <>
            <dt>{d.name}</dt>
            <dd>
              <Dot state={d.ready >= d.desired ? 'ready' : d.ready > 0 ? 'progressing' : 'failed'} /> {d.ready} of {plural(d.desired, 'replica')} ready
            </dd>
          </>
        ))}
        {data.leaders.map((l) => (
          <>
            <dt>{l.lease.startsWith('sluice-replica-') ? 'Replica' : 'Leader'}</dt>
            <dd>
              <Dot state={l.lost ? 'failed' : 'ready'} /> <span class="mono long">{l.holder}</span> <span class="quiet">{l.lost ? 'lost its Lease' : 'renewed'} <Ago at={l.renewed} /></span>
            </dd>
          </>
        ))}
        <dt>Last sync</dt>
        <dd>{data.lastSync ? <Ago at={data.lastSync} /> : <span class="quiet">nothing was applied yet</span>}</dd>
        <dt>Queue</dt>
        <dd>
          {data.queue ? `${data.queue.waiting} waiting, ${data.queue.working} in work` : <span class="quiet">{data.hidden.length ? 'hidden' : 'no pod of the controllers runs in this cluster'}</span>}
        </dd>
      </dl>
      {data.hidden.length > 0 && (
        <details class="pad">
          <summary>
            <Pill state="suspended">hidden</Pill> {plural(data.hidden.length, 'fact')}
          </summary>
          <ul class="quiet">
            {data.hidden.map((h) => (
              <li>{h}</li>
            ))}
          </ul>
        </details>
      )}
    </Card>
  );
}

const concerns = (c: Change) => !c.id.startsWith('Provider/') && !c.id.startsWith('Alert/');

// Deployments lists the last changes by commit.
function Deployments() {
  const { data, error } = useData<ChangePage>(`changes?limit=${shownChanges}`, concerns);
  return (
    <Card title="Deployments" end={<Link to="/changes">All changes</Link>}>
      {!data && (
        <div class="pad">
          <Loading error={error} />
        </div>
      )}
      {data?.changes.length === 0 && <Empty>Nothing was applied yet.</Empty>}
      <ul class="plain rows">
        {data?.changes.slice(0, shownChanges).map((c) => (
          <Deployment key={c.key} of={c} />
        ))}
      </ul>
    </Card>
  );
}

// stateOf returns the state of a change: the worst of what it concerns.
export function stateOf(c: ChangeSet): State {
  const items = [...(c.live ?? []), ...(c.sources ?? [])];
  return c.failedCount > 0 ? 'failed' : c.pendingCount > 0 ? 'waiting' : (states.find((s) => items.some((i) => i.state === s)) ?? 'ready');
}

function Deployment({ of: c }: { of: ChangeSet }) {
  const state = stateOf(c);
  const names = [...new Set([...(c.failed ?? []), ...(c.pending ?? []), ...(c.live ?? [])].map((i) => i.name))];
  const done = [c.failedCount && `${c.failedCount} failed`, c.pendingCount && `${c.pendingCount} waiting`, c.liveCount && `${c.liveCount} applied`].filter(Boolean).join(', ');
  return (
    <li class="item">
      <span class={`tile-icon ${state}`}>
        <Icon of={GitCompareArrows} size={14} />
      </span>
      <div>
        <div class="line">
          <strong class="long">{c.subject || 'A revision'}</strong>
          <span class="end">
            <Ago at={c.at} />
          </span>
        </div>
        <div class="line">
          <Revision of={c.revision} />
          <span class="quiet">
            <Author of={c.author} />
          </span>
        </div>
        <p class="quiet long">
          {done || 'fetched'}
          {names.length > 0 && ` · ${names.slice(0, 4).join(', ')}${names.length > 4 ? ` and ${names.length - 4} more` : ''}`}
        </p>
      </div>
    </li>
  );
}

// Applications is the start of the table of applications, worst first.
function Applications({ data }: { data: Data }) {
  const page = useData<Page>(`items?kind=Kustomization&kind=HelmRelease&order=state&limit=${shownApplications}`, concerns);
  return (
    <Card
      title="Applications"
      extra={
        <div class="chips">
          {data.byNamespace.slice(0, 6).map((g) => (
            <Link to={`/applications?namespace=${encodeURIComponent(g.name)}`} class="count">
              {g.name}
            </Link>
          ))}
        </div>
      }
      end={
        <Link to="/applications">
          All applications <Icon of={ArrowRight} size={13} />
        </Link>
      }
    >
      {page.data ? <Table items={page.data.items} /> : <Loading error={page.error} />}
    </Card>
  );
}

const shownGroups = 8;

function Groups({ title, groups, to }: { title: string; groups: Group[]; to: (name: string) => string }) {
  const row = (g: Group) => (
    <li key={g.name}>
      <div class="line">
        {title === 'By kind' && <KindIcon kind={g.name} />}
        <Link to={to(g.name)}>{g.name}</Link>
      </div>
      <Health counts={g.counts} />
    </li>
  );
  return (
    <Card title={title}>
      <ul class="plain rows">{groups.slice(0, shownGroups).map(row)}</ul>
      {groups.length > shownGroups && (
        <details class="pad">
          <summary>{groups.length - shownGroups} more</summary>
          <ul class="plain rows">{groups.slice(shownGroups).map(row)}</ul>
        </details>
      )}
    </Card>
  );
}
