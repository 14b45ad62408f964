import { Download, Network, Table2 } from 'lucide-preact';
import { useRef, useState } from 'preact/hooks';
import { ActionBar } from '../actions';
import { Answer, Detail, download, get, Item, Node, path, ReleaseDiff, Reverted, Tree as Made } from '../api';
import { useData, useTitle } from '../hooks';
import { Icon, KindIcon } from '../icons';
import { Conditions, Events } from '../conditions';
import { Ago, Author, Brief, Card, DiffText, Dot, Empty, Heading, Loading, ObjectLink, Outside, Pill, plural, Problem, Revision, shortRevision, Tabs, YAMLText } from '../parts';
import { Pipeline } from '../pipeline';
import { Link, Place } from '../router';
import { Panel } from '../panel';
import { GoBack, GoBackNote } from '../rollback';
import { flat, idOf, stateOf, Tree } from '../tree';
import { NotFromGit } from './drift';
import { GateBody, GateState } from './gate';
import { InputSets } from './inputs';
import { LogPage } from './logs';
import { PendingChange } from './pending';

// ObjectPage is everything about one object.
export function ObjectPage({ id, place }: { id: string; place: Place }) {
  const [kind = '', namespace = '', ...rest] = id.split('/');
  useTitle(rest.join('/') || id);
  const waiting = useRef(new Set<string>());
  const { data, error, reload } = useData<Detail>('objects/' + path(id), (c) => c.id === id || waiting.current.has(c.id));
  waiting.current = new Set(data?.gate?.waiting.map((w) => w.id));
  const heading = (item?: Item) => (
    <Heading title={rest.join('/')} sub={`${kind} · ${namespace}`} icon={<KindIcon kind={kind} size={20} />}>
      {item && <Pill state={item.state}>{item.deleting ? 'being deleted' : undefined}</Pill>}
      {item && <GateState item={item} />}
      {data && !data.gate && (
        <span class="end">
          <ActionBar id={id} actions={data.actions} seen={[]} detail={data} onDone={reload} />
        </span>
      )}
    </Heading>
  );
  if (!data) {
    return (
      <>
        {heading()}
        <Loading error={error} />
      </>
    );
  }
  const item = data.item;
  return (
    <>
      {heading(item)}
      <Problem error={error} />
      {item.reverted && <WentBack reverted={item.reverted} />}
      {data.suspension && <p class="alert waiting">Suspended by {data.suspension}</p>}
      {item.deleting && (
        <p class="alert waiting">
          Its deletion was requested <Ago at={item.deleting} />. {item.finalizers?.length ? `It is held by ${item.finalizers.join(', ')}.` : ''}
        </p>
      )}
      <Way id={id} />
      {data.gate && (
        <section class={data.gate.item.gate?.count ? 'gate waits' : 'gate'}>
          <div class="pad">
            <GateBody entry={data.gate} onDone={reload} />
          </div>
        </section>
      )}
      <Parts id={id} data={data} place={place} onDone={reload} />
    </>
  );
}

// Way is the line of steps that the current change took.
function Way({ id }: { id: string }) {
  const { data } = useData<Answer>('why?q=' + encodeURIComponent(id));
  const chain = data?.chains.find((c) => c.target.id === id);
  if (!chain || chain.steps.length < 2) {
    return null;
  }
  return (
    <section class="card">
      <Pipeline steps={chain.steps} />
    </section>
  );
}

// makers are the kinds of objects that apply others.
const makers = ['Kustomization', 'HelmRelease', 'ResourceSet'];
const sources = ['GitRepository', 'OCIRepository', 'Bucket', 'HelmChart', 'ExternalArtifact'];

function Parts({ id, data, place, onDone }: { id: string; data: Detail; place: Place; onDone: () => void }) {
  const parts = [
    { name: 'Conditions', show: () => <Conditions of={data.conditions} /> },
    { name: 'Events', show: () => <Events of={data.events} error={data.eventError} /> },
    { name: 'History', show: () => <History id={id} data={data} onDone={onDone} /> },
    { name: 'YAML', show: () => <YAML text={data.yaml} /> },
  ];
  const values = data.values;
  if (values) {
    parts.splice(3, 0, { name: 'Values', show: () => <YAML text={values} /> });
  }
  if (makers.includes(data.item.kind) && data.item.objects) {
    parts.unshift({ name: 'Resources', show: () => <Resources id={id} data={data} /> }, { name: 'Diff', show: () => <Differences id={id} data={data} /> },
      { name: 'Logs', show: () => <LogPage id={id} place={place} isPart /> });
  }
  if (data.item.kind === 'ResourceSet') {
    parts.splice(data.item.objects ? 1 : 0, 0, { name: 'Inputs', show: () => <InputSets id={id} /> });
  }
  return (
    <div class="grid wide">
      <div>
        <Tabs parts={parts} place={place} />
        {data.pending && <PendingChange pending={data.pending} why={data.why} />}
        {data.diff && (
          <Card title="Changes in git">
            <DiffText label="Changes in git">{data.diff}</DiffText>
          </Card>
        )}
      </div>
      <Facts data={data} />
    </div>
  );
}

function Facts({ data }: { data: Detail }) {
  const item = data.item;
  const links = (ids?: string[]) => ids?.length && ids.map((i) => <div>{<ObjectLink id={i} />}</div>);
  const files = [item.id, ...(item.sources ?? [])].filter((id) => sources.includes(id.split('/')[0] ?? ''));
  const facts: [string, unknown][] = [
    ['Message', item.message && <Brief text={item.message} />],
    ['Since', item.since && <Ago at={item.since} />],
    ['Revision', item.revision && <Revision of={item.revision} />],
    ['Commit', (item.subject || item.author) && <>{item.subject} <span class="quiet"><Author of={item.author} /></span></>],
    ['Built from', links(item.sources)],
    ['Artifact', files.length > 0 && <Artifacts of={files} />],
    ['Depends on', links(item.dependsOn)],
    ['Gates', links(item.gates)],
    ['Applied by', links(item.appliedBy ? [item.appliedBy] : [])],
    ['Objects', item.objects],
    ['Let through', <Admitted data={data} />],
    ['Elsewhere', (
      <>
        <Link to={'/graph?root=' + encodeURIComponent(item.id)}>graph</Link>{' · '}
        <Link to={'/why?q=' + encodeURIComponent(item.id)}>why is it not live?</Link>
        {item.url && <> · <Outside to={item.url}>open the source</Outside></>}
      </>
    )],
  ];
  return (
    <Card title="Details">
      <dl class="facts">
        {facts.filter(([name, fact]) => fact && (name !== 'Let through' || (data.admitted && item.gates?.length))).map(([name, fact]) => (
          <>
            <dt>{name}</dt>
            <dd>{fact as preact.ComponentChildren}</dd>
          </>
        ))}
      </dl>
    </Card>
  );
}

// Artifacts downloads what sources have now.
function Artifacts({ of }: { of: string[] }) {
  const [error, setError] = useState<Error>();
  return (
    <>
      {of.map((id) => (
        <button class="small" title={`What ${id} has now`} onClick={() => void download(`objects/${path(id)}/artifact`).then(() => setError(undefined), setError)}>
          <Icon of={Download} size={14} /> {of.length > 1 ? id.split('/').pop() : 'Download'}
        </button>
      ))}
      <Problem error={error} />
    </>
  );
}

// WentBack says that a gate made the object go back to an earlier revision, and what to do.
function WentBack({ reverted }: { reverted: Reverted }) {
  return (
    <div class="alert">
      <p>
        <strong>Went back</strong> from <Revision of={reverted.from} /> to <Revision of={reverted.to} /> <Ago at={reverted.since} /> by{' '}
        <ObjectLink id={reverted.gate} />: <Brief text={reverted.reason} />
      </p>
      <p>
        What to do: commit a fix, which passes by the rules of the gate. To {reverted.by ? 'allow the refused' : 'try the failed'} revision again,
        open or approve the gate for it by its name.
      </p>
    </div>
  );
}

// Admitted says which revision gates let through last, and how it went.
function Admitted({ data }: { data: Detail }) {
  const a = data.admitted;
  return a ? (
    <>
      <Revision of={a.revision} />
      {a.readyAt && (
        <span class="quiet">
          {' '}
          first ready <Ago at={a.readyAt} />
        </span>
      )}
      {a.failedAt && (
        <>
          {' '}
          <Pill state="failed">unhealthy</Pill> since <Ago at={a.failedAt} />: {a.message}
        </>
      )}
    </>
  ) : null;
}

function YAML({ text }: { text: string }) {
  const [said, setSaid] = useState('Copy');
  const copy = () => navigator.clipboard?.writeText(text).then(() => setSaid('Copied'), () => setSaid('The browser refused'));
  return (
    <Card title="Manifest" extra={<span class="quiet">secrets are masked</span>} end={<button class="small" onClick={() => void copy()}>{said}</button>}>
      <YAMLText label="YAML">{text}</YAMLText>
    </Card>
  );
}

function History({ id, data, onDone }: { id: string; data: Detail; onDone: () => void }) {
  if (data.history.length === 0) {
    return <Empty>No history.</Empty>;
  }
  return (
    <Card title="History">
      <GoBackNote data={data} />
      <ul class="plain rows">
        {data.history.map((h, i) => (
          <li key={h.name + h.at}>
            <div class="line">
              {h.subject && <strong>{h.subject}</strong>} <Revision of={h.name} /> <span>{h.status}</span>
              <span class="quiet">
                <Author of={h.author} /> {h.by}
              </span>
              <span class="end">
                <Ago at={h.at} />
              </span>
            </div>
            <p class="quiet">
              <Digest of={h.text} />
            </p>
            <div class="line">
              <GoBack data={data} to={h} onDone={onDone} />
              <Outside to={h.commit}>commit in git</Outside>
              <Outside to={h.compare}>changes since the revision before, in git</Outside>
            </div>
            {h.version && <Versions id={id} from={data.history[i + 1]?.version ?? 0} to={h.version} />}
          </li>
        ))}
      </ul>
    </Card>
  );
}

// Differences are what differs: git from the cluster, and one revision from another. What waits stands below all tabs.
function Differences({ id, data }: { id: string; data: Detail }) {
  return (
    <>
      <NotFromGit id={id} />
      {data.history.length > 1 && (
        <Card title="Two revisions">
          <Compare id={id} data={data} />
          {data.item.kind === 'Kustomization' && (
            <p class="quiet pad">The cluster keeps no manifests of earlier revisions: their commits are compared in git.</p>
          )}
        </Card>
      )}
    </>
  );
}

// Digest shows a digest with 8 characters; other texts as they are.
function Digest({ of }: { of?: string }) {
  const digest = /^sha256:([0-9a-f]{8})[0-9a-f]+$/.exec(of ?? '');
  return digest ? <span class="mono" title={of}>{digest[1]}</span> : <>{of}</>;
}

// Compare shows what differs between any two versions of the history.
function Compare({ id, data }: { id: string; data: Detail }) {
  const isRelease = data.item.kind === 'HelmRelease';
  const known = new Set<string>();
  const all = data.history.map((h) => ({ value: isRelease ? String(h.version) : h.name, name: shortRevision(h.name) })).filter((h) => !known.has(h.value) && known.add(h.value));
  const [from, setFrom] = useState(all[1]?.value ?? '');
  const [to, setTo] = useState(all[0]?.value ?? '');
  const [page, setPage] = useState('');
  const [error, setError] = useState<Error>();
  if (all.length < 2 || (!isRelease && !data.history.some((h) => h.commit))) {
    return null;
  }
  const choose = (set: (v: string) => void) => (e: { currentTarget: HTMLSelectElement }) => {
    set(e.currentTarget.value);
    setPage('');
  };
  const find = async () => {
    try {
      const q = new URLSearchParams({ from, to });
      setPage((await get<{ compare: string }>(`objects/${path(id)}/diff?${q.toString()}`)).compare);
      setError(undefined);
    } catch (e) {
      setError(e as Error);
    }
  };
  const options = all.map((h) => <option value={h.value}>{h.name}</option>);
  return (
    <div class="pad">
      <div class="filters">
        <label>
          Compare
          <select value={from} onChange={choose(setFrom)}>
            {options}
          </select>
        </label>
        <label>
          with
          <select value={to} onChange={choose(setTo)}>
            {options}
          </select>
        </label>
        {!isRelease && from !== to && (page ? <Outside to={page}>open the comparison</Outside> : <button onClick={() => void find()}>Compare in git</button>)}
      </div>
      <Problem error={error} />
      {isRelease && from !== to && <Versions key={from + ' ' + to} id={id} from={Number(from)} to={Number(to)} />}
    </div>
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

// Resources is what the object made, as a tree or as a table.
function Resources({ id, data: detail }: { id: string; data: Detail }) {
  const { data, error } = useData<Made>(`objects/${path(id)}/tree`, (c) => c.id === id);
  const [table, setTable] = useState(false);
  const [words, setWords] = useState('');
  const [chosen, setChosen] = useState<Node>();
  if (!data) {
    return <Loading error={error} />;
  }
  const touched = new Set((detail.pending?.changes ?? []).map((c) => c.replace(/ \w+$/, '')));
  return (
    <Card
      title={plural(data.total - 1, 'object')}
      extra={data.omitted > 0 && <span class="quiet">{data.omitted} more are not shown</span>}
      end={
        <span class="line">
          <input type="search" aria-label="Filter objects" placeholder="Filter objects" value={words} onInput={(e) => setWords(e.currentTarget.value)} />
          <span class="switch" role="group" aria-label="Show as">
            <button aria-pressed={!table} onClick={() => setTable(false)}>
              <Icon of={Network} size={14} /> Tree
            </button>
            <button aria-pressed={table} onClick={() => setTable(true)}>
              <Icon of={Table2} size={14} /> Table
            </button>
          </span>
        </span>
      }
    >
      {table ? (
        <Rows top={data.top} words={words.toLowerCase()} onChoose={setChosen} />
      ) : (
        <Tree top={data.top} words={words} touched={touched} chosen={chosen && idOf(chosen)} onChoose={setChosen} />
      )}
      {chosen && <Panel node={chosen} onClose={() => setChosen(undefined)} />}
    </Card>
  );
}

function Rows({ top, words, onChoose }: { top: Node; words: string; onChoose: (n: Node) => void }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of resources">
      <table class="cards">
        <thead>
          <tr>
            <th>Name</th>
            <th>Kind</th>
            <th>Namespace</th>
            <th>Health</th>
          </tr>
        </thead>
        <tbody>
          {flat(top.below ?? [])
            .filter(([n]) => idOf(n).toLowerCase().includes(words))
            .map(([n, depth]) => (
              <tr key={idOf(n)}>
                <td>
                  <span class="line" style={{ paddingLeft: depth * 18 }}>
                    <Dot state={stateOf(n.status)} />
                    <button class="small ghost name" onClick={() => onChoose(n)} data-row>
                      {n.name}
                    </button>
                  </span>
                </td>
                <td class="tight">
                  <span class="line">
                    <KindIcon kind={n.kind} /> {n.kind}
                  </span>
                </td>
                <td class="tight">{n.namespace}</td>
                <td class="message">
                  {n.status} <span class="quiet">{n.message}</span>
                </td>
              </tr>
            ))}
        </tbody>
      </table>
    </div>
  );
}
