import { CirclePlay, RotateCw, ScrollText } from 'lucide-preact';
import { useEffect, useState } from 'preact/hooks';
import { get, states, Workload, WorkloadPage } from '../api';
import { useData, useTitle } from '../hooks';
import { Icon, KindIcon } from '../icons';
import { Ago, Author, Brief, Dot, Empty, Heading, Loading, objectPath, plural, Problem, Revision } from '../parts';
import { Link, Place, setQuery } from '../router';
import { Spark } from '../spark';
import { cores, memory, shortImage } from '../units';
import { WorkloadAction, workloadActions } from '../workload';
import { logsPath } from './logs';

const kinds = ['Deployment', 'StatefulSet', 'DaemonSet', 'Job', 'CronJob'];
const readAgain = 30_000; // milliseconds: pods change without a change of their application

// Workloads lists what Kustomizations and HelmReleases run, the worst first.
export function Workloads({ place }: { place: Place }) {
  useTitle('Workloads');
  const query = place.query.toString();
  const { data, error, reload } = useData<WorkloadPage>('workloads?' + query, (c) => /^(Kustomization|HelmRelease)\//.test(c.id));
  useEffect(() => {
    const timer = window.setInterval(reload, readAgain);
    return () => window.clearInterval(timer);
  }, [query]);
  return (
    <>
      <Heading title="Workloads" sub="what Kustomizations and HelmReleases run" />
      <Filters place={place} />
      <Problem error={error} />
      {data?.notes.map((n) => (
        <p class="alert waiting">{n}</p>
      ))}
      {data ? <Pages key={query} first={data} query={place.query} onDone={reload} /> : <Loading error={error} />}
    </>
  );
}

function Filters({ place }: { place: Place }) {
  const state = place.query.get('state') ?? '';
  return (
    <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
      <input type="search" aria-label="Search" placeholder="name, image, application" value={place.query.get('q') ?? ''}
        onInput={(e) => setQuery(place, { q: e.currentTarget.value })} />
      <div class="chips" role="group" aria-label="State">
        {['', ...states].map((s) => (
          <button type="button" aria-pressed={state === s} onClick={() => setQuery(place, { state: s })}>
            {s || 'all'}
          </button>
        ))}
      </div>
      <label>
        Kind
        <select value={place.query.get('kind') ?? ''} onChange={(e) => setQuery(place, { kind: e.currentTarget.value })}>
          <option value="">all</option>
          {kinds.map((k) => (
            <option value={k}>{k}</option>
          ))}
        </select>
      </label>
      <label>
        Namespace
        <input class="narrow" value={place.query.get('namespace') ?? ''} onChange={(e) => setQuery(place, { namespace: e.currentTarget.value })} />
      </label>
    </form>
  );
}

function Pages({ first, query, onDone }: { first: WorkloadPage; query: URLSearchParams; onDone: () => void }) {
  const [more, setMore] = useState<WorkloadPage[]>([]);
  const [error, setError] = useState<Error>();
  const pages = [first, ...more];
  const next = pages[pages.length - 1]?.next;
  const all = pages.flatMap((p) => p.workloads);
  const load = async () => {
    const q = new URLSearchParams(query);
    q.set('after', next ?? '');
    try {
      setMore([...more, await get<WorkloadPage>('workloads?' + q.toString())]);
    } catch (e) {
      setError(e as Error);
    }
  };
  return (
    <>
      <p class="quiet" role="status">
        {plural(first.total, 'workload')}
        {!first.usage && ' · CPU and memory need metrics-server, which is not served or not yours to read'}
      </p>
      <section class="card">
        {all.length === 0 ? (
          <Empty>No workload matches. Only those that a Kustomization or a HelmRelease applied are listed.</Empty>
        ) : (
          <Table all={all} usage={first.usage} onDone={onDone} />
        )}
      </section>
      <Problem error={error} />
      {next && <button onClick={() => void load()}>Show more</button>}
    </>
  );
}

function Table({ all, usage, onDone }: { all: Workload[]; usage: boolean; onDone: () => void }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of workloads">
      <table class="cards">
        <thead>
          <tr>
            <th>Name</th>
            <th>Namespace</th>
            <th>Kind</th>
            <th>Replicas</th>
            <th>Images</th>
            <th>Restarts</th>
            {usage && <th class="number">CPU</th>}
            {usage && <th class="number">Memory</th>}
            <th>From</th>
            <th>
              <span class="visually-hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {all.map((w) => (
            <Row key={w.id} of={w} usage={usage} onDone={onDone} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ of: w, usage, onDone }: { of: Workload; usage: boolean; onDone: () => void }) {
  return (
    <tr>
      <td class="tight">
        <span class="line">
          <Dot state={w.state} />
          <Link to={logsPath(w.id)} class="name" title="Logs" data-row>
            {w.name}
          </Link>
        </span>
      </td>
      <td class="tight">{w.namespace}</td>
      <td class="tight">
        <span class="line">
          <KindIcon kind={w.kind} /> {w.kind}
        </span>
      </td>
      <td>
        <Replicas of={w} />
      </td>
      <td>
        {(w.images ?? []).map((i) => (
          <div class="mono" title={i}>
            {shortImage(i)}
          </div>
        ))}
      </td>
      <td class="tight">
        {w.restarts > 0 && (
          <>
            {plural(w.restarts, 'restart')}{' '}
            <span class="quiet">
              <Ago at={w.restartedAt} />
            </span>
          </>
        )}
      </td>
      {usage && (
        <td class="tight number">
          <Spark of={w.used?.cpu} word={cores} /> {w.cpu ? cores(w.cpu) : ''}
        </td>
      )}
      {usage && (
        <td class="tight number">
          <Spark of={w.used?.memory} word={memory} /> {w.memory ? memory(w.memory) : ''}
        </td>
      )}
      <td>
        <span class="line">
          <Link to={objectPath(w.application)}>{w.application.split('/').pop()}</Link>
          <Revision of={w.revision} />
        </span>
        <div class="quiet long">
          {w.subject} {w.author && <>by <Author of={w.author} /></>}
        </div>
      </td>
      <td class="tight">
        <span class="line">
          <Link to={logsPath(w.id)} class="button ghost" aria-label={`Logs of ${w.id}`} title="Logs">
            <Icon of={ScrollText} />
          </Link>
          {workloadActions(w.kind).map((a) => (
            <WorkloadAction id={w.id} action={a} icon={<Icon of={a === 'run' ? CirclePlay : RotateCw} />} onDone={onDone} />
          ))}
        </span>
      </td>
    </tr>
  );
}

// Replicas says how many of how many are ready, or when a CronJob runs.
function Replicas({ of: w }: { of: Workload }) {
  if (w.kind === 'CronJob') {
    return (
      <>
        <code>{w.schedule}</code> {w.ready > 0 && plural(w.ready, 'job runs', 'jobs run')}
        {w.lastRun && (
          <div class="quiet">
            ran <Ago at={w.lastRun} />
          </div>
        )}
      </>
    );
  }
  return (
    <>
      {w.ready} of {w.desired} {w.kind === 'Job' ? 'done' : 'ready'}
      {w.message && (
        <div class="quiet long">
          <Brief text={w.message} />
        </div>
      )}
    </>
  );
}
