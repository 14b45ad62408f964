import { useState } from 'preact/hooks';
import { Detail, get, Node, path, Pending, Tree } from '../api';
import { ActionBar } from '../actions';
import { useData, useTitle } from '../hooks';
import { Ago, Badge, Loading, ObjectLink, Problem, Revision, Section, Tabs, Text } from '../parts';
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
        {web(item.url) && (
          <a href={web(item.url)} rel="noreferrer noopener" target="_blank">
            open the source (new tab)
          </a>
        )}
      </div>
      <p>{item.message}</p>
      {data.suspension && <p class="card">Suspended by {data.suspension}</p>}
      <ActionBar id={id} actions={data.actions} seen={(item.gate?.waiting ?? []).map((w) => `${w.id}@${w.revision}`)} onDone={reload} />
      {data.pending && <PendingChange pending={data.pending} />}
      <Relations title="Built from" ids={item.sources} />
      <Relations title="Depends on" ids={item.dependsOn} />
      <Relations title="Behind gates" ids={item.gates} />
      <Relations title="Applied by" ids={item.appliedBy ? [item.appliedBy] : []} />
      <Tabs
        parts={[
          { name: 'Conditions', show: () => <Conditions data={data} /> },
          { name: 'Events', show: () => <Events data={data} /> },
          { name: 'Objects', show: () => <Made id={id} /> },
          { name: 'History', show: () => <History data={data} /> },
          { name: 'YAML', show: () => <Text label="YAML">{data.yaml}</Text> },
        ]}
      />
    </>
  );
}

// web returns a URL if a browser can open it safely.
function web(url?: string): string | undefined {
  return url?.startsWith('https://') || url?.startsWith('http://') ? url : undefined;
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
export function PendingChange({ pending }: { pending: Pending }) {
  return (
    <div class="card">
      <p>
        <strong>Waits at a gate:</strong> <Revision of={pending.revision} /> since <Ago at={pending.since} />:{' '}
        {pending.created ?? 0} created, {pending.configured ?? 0} configured, {pending.deleted ?? 0} deleted
      </p>
      {pending.message && <p>{pending.message}</p>}
      <ul class="changes">
        {(pending.changes ?? []).map((c) => (
          <li class={c.endsWith('deleted') ? 'deleted' : ''}>{c}</li>
        ))}
      </ul>
    </div>
  );
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

function History({ data }: { data: Detail }) {
  if (data.history.length === 0) {
    return <p class="quiet">No history.</p>;
  }
  return (
    <ul class="plain">
      {data.history.map((h) => (
        <li class="card">
          <strong>{h.name}</strong> {h.status}{' '}
          <span class="quiet">
            <Ago at={h.at} /> {h.by}
          </span>
          <p class="quiet">{h.text}</p>
        </li>
      ))}
    </ul>
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
