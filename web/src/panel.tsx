import { ScrollText, X } from 'lucide-preact';
import { Drift, Foreign, Node, path, Resource } from './api';
import { Conditions, Events } from './conditions';
import { useData } from './hooks';
import { Icon, KindIcon } from './icons';
import { logsPath } from './pages/logs';
import { Ago, Empty, Loading, ObjectLink, Outside, Pill, Revision, Tabs, YAMLText } from './parts';
import { Link } from './router';
import { flat, idOf, stateOf } from './tree';
import { WorkloadAction, workloadActions } from './workload';

// Panel is one object of a tree: its health in words, images, what it made, and what can be done with it.
export function Panel({ node, onClose }: { node: Node; onClose: () => void }) {
  const id = idOf(node);
  const hasLogs = flat([node]).some(([n]) => n.kind === 'Pod');
  return (
    <aside class="panel" aria-label={id} onKeyDown={(e) => e.key === 'Escape' && onClose()}>
      <header>
        <span class="tile-icon">
          <KindIcon kind={node.kind} />
        </span>
        <div>
          <strong>{node.name}</strong>
          <div class="quiet">
            {node.kind} {node.namespace && `· ${node.namespace}`}
          </div>
        </div>
        <button class="ghost" aria-label="Close" onClick={onClose} ref={(b) => b?.focus()}>
          <Icon of={X} />
        </button>
      </header>
      {(hasLogs || workloadActions(node.kind).length > 0) && (
        <div class="pad buttons">
          {hasLogs && (
            <Link to={logsPath(id)} class="button">
              <Icon of={ScrollText} size={14} /> Logs
            </Link>
          )}
          {workloadActions(node.kind).map((a) => (
            <WorkloadAction id={id} action={a} />
          ))}
        </div>
      )}
      <dl class="facts">
        <dt>Health</dt>
        <dd>
          <Pill state={stateOf(node.status)}>{node.status}</Pill> {node.message}
        </dd>
        {!!node.images?.length && (
          <>
            <dt>Images</dt>
            <dd>
              {node.images.map((i) => (
                <div>
                  <code>{i}</code>
                </div>
              ))}
            </dd>
          </>
        )}
        {!!node.below?.length && (
          <>
            <dt>Made</dt>
            <dd>
              {node.below.map((n) => (
                <div>{idOf(n)}</div>
              ))}
            </dd>
          </>
        )}
      </dl>
      {node.status !== 'Hidden' && node.status !== 'NotFound' && <More key={id} node={node} />}
    </aside>
  );
}

// More is the object as the cluster has it now.
function More({ node }: { node: Node }) {
  const q = new URLSearchParams({ group: node.group ?? '', kind: node.kind, namespace: node.namespace ?? '', name: node.name });
  const { data, error } = useData<Resource>('resource?' + q.toString(), () => false);
  if (!data) {
    return (
      <div class="pad">
        <Loading error={error} />
      </div>
    );
  }
  return (
    <div class="pad">
      {data.owners.length > 0 && <p class="quiet">Owned by {data.owners.join(', ')}</p>}
      {data.appliedBy && (
        <p class="quiet">
          Applied by <ObjectLink id={data.appliedBy} />
        </p>
      )}
      <Tabs
        parts={[
          { name: 'Conditions', show: () => <Conditions of={data.conditions} /> },
          { name: 'Events', count: data.events.length, show: () => <Events of={data.events} error={data.eventError} /> },
          { name: 'Manifest', show: () => <Manifest name={node.name} of={data} /> },
          { name: 'Diff', count: data.foreign.length, show: () => <NotFromGit of={data} node={node} /> },
        ]}
      />
    </div>
  );
}

function Manifest({ name, of }: { name: string; of: Resource }) {
  return (
    <>
      <YAMLText label={`Manifest of ${name}`}>{of.yaml}</YAMLText>
      {of.managed && (
        <details>
          <summary>Managed fields</summary>
          <YAMLText label={`Managed fields of ${name}`}>{of.managed}</YAMLText>
        </details>
      )}
    </>
  );
}

// NotFromGit lists what differs from git: fields that others set or changed, with what git declares once it is rendered.
function NotFromGit({ of, node }: { of: Resource; node: Node }) {
  return of.appliedBy && /^(Kustomization|HelmRelease)\//.test(of.appliedBy) ? <WithGit of={of} node={node} by={of.appliedBy} /> : <Fields of={of} />;
}

function WithGit({ of, node, by }: { of: Resource; node: Node; by: string }) {
  const q = new URLSearchParams({ group: node.group ?? '', kind: node.kind, namespace: node.namespace ?? '', name: node.name });
  const { data, error } = useData<Drift>(`objects/${path(by)}/drift?${q.toString()}`, (c) => c.id === by);
  const known = data?.objects[0];
  return (
    <>
      <Fields of={data ? { ...of, foreign: known?.fields ?? [] } : of} />
      <GitNote of={data} error={error} />
      {known?.file && (
        <p>
          {known.page ? <Outside to={known.page}>{known.file}</Outside> : <code>{known.file}</code>}
        </p>
      )}
    </>
  );
}

function Fields({ of }: { of: Resource }) {
  if (!of.declared) {
    return <Empty>No controller of Sluice declares fields of this object.</Empty>;
  }
  if (of.foreign.length === 0) {
    return <Empty>All fields are from git.</Empty>;
  }
  return <ForeignFields of={of.foreign} />;
}

// GitNote says of which revision git's values are, or why they are not known.
export function GitNote({ of, error }: { of?: Drift; error?: Error }) {
  const why = error?.message ?? of?.gitError;
  return why ? (
    <p class="quiet">Git's values are not shown: {why}</p>
  ) : of?.git ? (
    <p class="quiet">
      Git's values are those of <Revision of={of.git} />
    </p>
  ) : null;
}

// ForeignFields lists fields that others than the controllers set or removed: what the cluster has, and what git declares.
export function ForeignFields({ of }: { of: Foreign[] }) {
  return (
    <ul class="plain rows">
      {of.map((f) => (
        <li key={f.path + f.manager}>
          <div class="line">
            <code class="long">{f.path}</code>
            <span class="quiet end">
              {f.value === undefined ? 'removed' : `set by ${f.manager ?? ''}`} {f.at && <Ago at={f.at} />}
            </span>
          </div>
          <dl class="sides">
            <div class="removed">
              <dt>git</dt>
              <dd>{f.git === undefined ? <span class="quiet">not declared, or not known</span> : <code>{f.git}</code>}</dd>
            </div>
            <div class="added">
              <dt>live</dt>
              <dd>{f.value === undefined ? <span class="quiet">the cluster does not have it</span> : <code>{f.value}</code>}</dd>
            </div>
          </dl>
        </li>
      ))}
    </ul>
  );
}
