import { useState } from 'preact/hooks';
import { Detail, get, Node, path, Pending, ReleaseDiff, seen, Tree } from '../api';
import { ActionBar } from '../actions';
import { useData, useTitle } from '../hooks';
import { Ago, Badge, DiffText, Loading, ObjectLink, Outside, Problem, Revision, Section, shortRevision, Tabs, Text } from '../parts';
import { Link } from '../router';

// ObjectPage is everything about one object.
export function ObjectPage({ id }: { id: string }) {
  useTitle(id);
  const { data, error, reload } = useData<Detail>('objects/' + path(id), (c) => c.id === id);
  if (!data) {
    return (
      <>
        <h1>{id}</h1>
        <Loading error={error} />
      </>
    );
  }
  const item = data.item;
  return (
    <>
      <h1>
        {item.kind} {item.namespace}/{item.name}
      </h1>
      <Problem error={error} />
      <div class="line">
        <Badge state={item.state} />
        <span class="quiet">
          since <Ago at={item.since} />
        </span>
        <Revision of={item.revision} />
        <Link to={'/graph?root=' + encodeURIComponent(id)}>graph</Link>
        <Link to={'/why?q=' + encodeURIComponent(item.name)}>why is it not live?</Link>
        <Outside to={item.url}>open the source</Outside>
      </div>
      <p>{item.message}</p>
      {data.suspension && <p class="card">Suspended by {data.suspension}</p>}
      <ActionBar id={id} actions={data.actions} seen={(item.gate?.waiting ?? []).map(seen)} onDone={reload} />
      {data.pending && <PendingChange pending={data.pending} />}
      {data.diff && (
        <Section title="Changes in git">
          <DiffText label="Changes in git">{data.diff}</DiffText>
        </Section>
      )}
      <Relations title="Built from" ids={item.sources} />
      <Relations title="Depends on" ids={item.dependsOn} />
      <Relations title="Behind gates" ids={item.gates} />
      <Relations title="Applied by" ids={item.appliedBy ? [item.appliedBy] : []} />
      <Tabs
        parts={[
          { name: 'Conditions', show: () => <Conditions data={data} /> },
          { name: 'Events', show: () => <Events data={data} /> },
          { name: 'Objects', show: () => <Made id={id} /> },
          { name: 'History', show: () => <History id={id} data={data} /> },
          { name: 'YAML', show: () => <Text label="YAML">{data.yaml}</Text> },
        ]}
      />
    </>
  );
}

function Relations({ title, ids }: { title: string; ids?: string[] }) {
  if (!ids?.length) {
    return null;
  }
  return (
    <p>
      {title}:{' '}
      {ids.map((id, i) => (
        <>
          {i > 0 && ', '}
          <ObjectLink id={id} />
        </>
      ))}
    </p>
  );
}

// PendingChange shows what would change if the gate opened.
export function PendingChange({ pending, why }: { pending: Pending; why?: string }) {
  return (
    <div class="card">
      <p>
        <strong>Waits at a gate:</strong> <Revision of={pending.revision} /> since <Ago at={pending.since} />:{' '}
        {pending.created ?? 0} created, {pending.configured ?? 0} configured, {pending.deleted ?? 0} deleted{' '}
        <Risk level={pending.risk} />
      </p>
      {why && <p>{why}</p>}
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

function Conditions({ data }: { data: Detail }) {
  return (
    <ul class="plain">
      {(data.conditions ?? []).map((c) => (
        <li class="card" key={c.type}>
          <strong>
            {c.type}: {c.status}
          </strong>{' '}
          <span class="quiet">
            {c.reason}, <Ago at={c.lastTransitionTime} />
          </span>
          <p>{c.message}</p>
        </li>
      ))}
    </ul>
  );
}

function Events({ data }: { data: Detail }) {
  if (data.eventError) {
    return <Problem error={new Error(data.eventError)} />;
  }
  if (data.events.length === 0) {
    return <p class="quiet">No events in the last hour.</p>;
  }
  return (
    <ul class="plain">
      {data.events.map((e) => (
        <li class={e.type === 'Warning' ? 'card failed' : 'card'}>
          <strong>
            {e.type}: {e.reason}
          </strong>{' '}
          <span class="quiet">
            <Ago at={e.at} />
            {e.count > 1 ? `, ${e.count} times` : ''}
          </span>
          <p>{e.message}</p>
        </li>
      ))}
    </ul>
  );
}

function History({ id, data }: { id: string; data: Detail }) {
  if (data.history.length === 0) {
    return <p class="quiet">No history.</p>;
  }
  return (
    <>
      {data.item.kind === 'Kustomization' && (
        <p class="quiet">
          The cluster keeps no manifests of earlier revisions: the links compare the commits in git. What waits at a gate is
          compared with the cluster above.
        </p>
      )}
      <ul class="plain">
        {data.history.map((h, i) => (
          <li class="card" key={h.name + h.at}>
            <strong>{h.name}</strong> {h.status}{' '}
            <span class="quiet">
              <Ago at={h.at} /> {h.by}
            </span>
            <p class="quiet">{h.text}</p>
            <div class="line">
              <Outside to={h.commit}>commit in git</Outside>
              <Outside to={h.compare}>changes since the revision before, in git</Outside>
            </div>
            {h.version && <Versions id={id} from={data.history[i + 1]?.version ?? 0} to={h.version} />}
          </li>
        ))}
      </ul>
    </>
  );
}

// Versions shows on request what differs between two versions of a Helm release.
function Versions({ id, from, to }: { id: string; from: number; to: number }) {
  const [data, setData] = useState<ReleaseDiff>();
  const [error, setError] = useState<Error>();
  const load = async () => {
    try {
      setData(await get<ReleaseDiff>(`objects/${path(id)}/diff?from=${from}&to=${to}`));
      setError(undefined);
    } catch (e) {
      setError(e as Error);
    }
  };
  const name = from ? `changes from version ${from} to ${to}` : `objects of version ${to}`;
  return (
    <div>
      <button class="small" aria-expanded={!!data} onClick={() => (data ? setData(undefined) : void load())}>
        {name}
      </button>
      <Problem error={error} />
      {data?.changes.length === 0 && <p class="quiet">The manifests are equal.</p>}
      {data?.changes.map((c) => (
        <div key={c.object}>
          <p>
            {c.object} {c.action}
          </p>
          {c.diff && <DiffText label={`Changes of ${c.object}`}>{c.diff}</DiffText>}
        </div>
      ))}
      {!!data?.omitted && <p class="quiet">{data.omitted} more changed objects are not shown.</p>}
    </div>
  );
}

function Made({ id }: { id: string }) {
  const { data, error } = useData<Tree>(`objects/${path(id)}/tree`, (c) => c.id === id);
  if (!data) {
    return <Loading error={error} />;
  }
  return (
    <Section title={`${data.total - 1} objects`}>
      {data.omitted > 0 && <p class="quiet">{data.omitted} more are not shown.</p>}
      <Below nodes={data.top.below ?? []} />
    </Section>
  );
}

function Below({ nodes }: { nodes: Node[] }) {
  return (
    <ul class="tree">
      {nodes.map((n) => (
        <li key={n.kind + n.namespace + n.name}>
          <span class={`status ${n.status}`}>{n.status}</span> {n.kind} {n.namespace ? n.namespace + '/' : ''}
          {n.name} <span class="quiet">{n.message}</span>
          {n.kind === 'Pod' && (n.containers ?? []).map((c, i) => <Log pod={n} container={c} image={n.images?.[i]} />)}
          {n.below && <Below nodes={n.below} />}
        </li>
      ))}
    </ul>
  );
}

function Log({ pod, container, image }: { pod: Node; container: string; image?: string }) {
  const [text, setText] = useState<string>();
  const [error, setError] = useState<Error>();
  const load = async () => {
    const q = new URLSearchParams({ namespace: pod.namespace ?? '', pod: pod.name, container });
    try {
      const log = await get<{ text: string }>('logs?' + q.toString());
      setText(log.text);
      setError(undefined);
    } catch (e) {
      setError(e as Error);
    }
  };
  return (
    <div>
      <span class="quiet">
        {container}: {image}
      </span>{' '}
      <button class="small" onClick={() => void load()}>
        logs of {container}
      </button>
      <Problem error={error} />
      {text !== undefined && <Text label={`Logs of ${container}`}>{text || 'The log is empty.'}</Text>}
    </div>
  );
}
