import { useRef, useState } from 'preact/hooks';
import { Detail, get, Node, path, ReleaseDiff, Reverted, Tree } from '../api';
import { ActionBar } from '../actions';
import { useData, useTitle } from '../hooks';
import { Ago, Badge, Brief, DiffText, Loading, ObjectLink, Outside, Problem, Revision, Section, Tabs, Text } from '../parts';
import { Link } from '../router';
import { GateBody, GateState } from './gate';
import { PendingChange } from './pending';

// ObjectPage is everything about one object.
export function ObjectPage({ id }: { id: string }) {
  useTitle(id);
  const waiting = useRef(new Set<string>());
  const { data, error, reload } = useData<Detail>('objects/' + path(id), (c) => c.id === id || waiting.current.has(c.id));
  waiting.current = new Set(data?.gate?.waiting.map((w) => w.id));
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
        <GateState item={item} />
        <Link to={'/graph?root=' + encodeURIComponent(id)}>graph</Link>
        <Link to={'/why?q=' + encodeURIComponent(item.name)}>why is it not live?</Link>
        <Outside to={item.url}>open the source</Outside>
      </div>
      <p>
        <Brief text={item.message} />
      </p>
      {data.suspension && <p class="card">Suspended by {data.suspension}</p>}
      {item.reverted && <WentBack reverted={item.reverted} />}
      {data.gate ? (
        <section class={data.gate.item.gate?.count ? 'gate waits' : 'gate'}>
          <GateBody entry={data.gate} onDone={reload} />
        </section>
      ) : (
        <ActionBar id={id} actions={data.actions} seen={[]} onDone={reload} />
      )}
      {data.pending && <PendingChange pending={data.pending} why={data.why} />}
      <Admitted data={data} />
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

// WentBack says that a gate made the object go back to an earlier revision, and what to do.
function WentBack({ reverted }: { reverted: Reverted }) {
  return (
    <div class="card failed">
      <p>
        <strong>↶ Reverted</strong> from <Revision of={reverted.from} /> to <Revision of={reverted.to} /> <Ago at={reverted.since} /> by{' '}
        <ObjectLink id={reverted.gate} />: <Brief text={reverted.reason} />
      </p>
      <p>
        <em>
          What to do: commit a fix, which passes by the rules of the gate. To try the failed revision again, open or approve the
          gate for it by its name.
        </em>
      </p>
    </div>
  );
}

// Admitted says which revision gates let through last, and how it went.
function Admitted({ data }: { data: Detail }) {
  const a = data.admitted;
  return a ? (
    <p>
      Let through by gates: <Revision of={a.revision} />
      {a.readyAt && (
        <span class="quiet">
          , first ready <Ago at={a.readyAt} />
        </span>
      )}
      {a.failedAt && (
        <>
          , <span class="badge failed">✕ unhealthy</span> since <Ago at={a.failedAt} />: {a.message}
        </>
      )}
    </p>
  ) : null;
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
