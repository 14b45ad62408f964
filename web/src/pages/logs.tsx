import { server } from '../base';
import { ChevronDown, ChevronRight, Download, Link2, ScrollText } from 'lucide-preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { save } from '../api';
import { useData, useTitle } from '../hooks';
import { Icon, KindIcon } from '../icons';
import { Empty, Heading, Loading, objectPath, plural, Problem } from '../parts';
import { Link, Place, setQuery } from '../router';
import { useRows } from '../virtual';
import { add, Level, levels, Line, marked, matches, maxLines, padTime, parse, search } from './log';

const colours = 8; // of pods
const rowHeight = 22; // pixels of a line, before it is measured
const nearEnd = 40; // pixels from the end within which the page follows

interface Target {
  pod: string;
  container: string;
}

interface Stream {
  lines: Line[];
  containers?: Target[];
  omitted: number;
  problems: (Target & { error: string })[];
  ended: boolean;
  broken: boolean;
}

const empty: Stream = { lines: [], omitted: 0, problems: [], ended: false, broken: false };

// useLog reads the logs of an object. A stream that breaks is opened again by the browser; lines that it repeats are left out.
function useLog(address?: string): Stream {
  const [state, setState] = useState(empty);
  useEffect(() => {
    setState(empty);
    if (!address) {
      return;
    }
    const source = new EventSource(server + '/api/v1/logs/stream?' + address);
    const last = new Map<string, string>();
    let known = new Map<string, string>();
    let number = 0;
    const on = (event: string, f: (data: unknown, before: Stream) => Partial<Stream>) =>
      source.addEventListener(event, (e) => {
        const data: unknown = JSON.parse((e as MessageEvent<string>).data);
        setState((before) => ({ ...before, broken: false, ...f(data, before) }));
      });
    source.addEventListener('open', () => (known = new Map(last)));
    on('pods', (data) => data as { containers: Target[]; omitted: number });
    on('problem', (data, before) => ({ problems: [...before.problems.filter((p) => !same(p, data as Target)), data as Target & { error: string }] }));
    on('end', () => {
      source.close();
      return { ended: true };
    });
    source.addEventListener('lines', (e) => {
      const more: Line[] = [];
      for (const l of JSON.parse((e as MessageEvent<string>).data) as (Target & { at?: string; text: string })[]) {
        const at = padTime(l.at);
        const key = l.pod + '/' + l.container;
        if (!at || at > (known.get(key) ?? '')) {
          last.set(key, at);
          more.push({ ...l, at, number: number++, ...parse(l.text) });
        }
      }
      setState((before) => ({ ...before, broken: false, lines: add(before.lines, more) }));
    });
    source.addEventListener('error', () => {
      if (source.readyState === EventSource.CLOSED) {
        // The server refused. A plain request says why.
        void refusal(address).then((error) => setState((before) => ({ ...before, ended: true, problems: [{ pod: '', container: '', error }] })));
      } else {
        setState((before) => ({ ...before, broken: true }));
      }
    });
    return () => source.close();
  }, [address]);
  return state;
}

function same(a: Target, b: Target): boolean {
  return a.pod === b.pod && a.container === b.container;
}

// refusal returns why the server does not send a log.
async function refusal(address: string): Promise<string> {
  const control = new AbortController();
  try {
    const response = await fetch(server + '/api/v1/logs/stream?' + address, { signal: control.signal });
    return response.ok ? 'The log ended. Load the page again.' : ((await response.json()) as { error: string }).error;
  } catch {
    return 'The server of the UI cannot be reached.';
  } finally {
    control.abort();
  }
}

// logsPath returns the address of the logs of an object.
export function logsPath(id: string, container = ''): string {
  const [kind = '', namespace = '', ...name] = id.split('/');
  const q = new URLSearchParams({ kind, namespace, name: name.join('/') });
  if (container) {
    q.set('container', container);
  }
  return '/logs?' + q.toString();
}

// Logs shows the logs of all pods of an object in one stream. What is chosen is in the address, which can be shared.
export function Logs({ place }: { place: Place }) {
  const q = (key: string) => place.query.get(key) ?? '';
  const name = q('name');
  useTitle(name ? `Logs of ${name}` : 'Logs');
  if (!name) {
    return <Choose />;
  }
  return <LogPage key={`${q('kind')}/${q('namespace')}/${name}`} place={place} id={`${q('kind')}/${q('namespace')}/${name}`} />;
}

// LogPage is the logs of an object; without a heading it is a part of the page of the object.
export function LogPage({ place, id, isPart }: { place: Place; id: string; isPart?: boolean }) {
  const q = (key: string) => place.query.get(key) ?? '';
  const [kind = '', namespace = '', name = ''] = id.split('/');
  const previous = q('previous') === 'true';
  const params = new URLSearchParams({ kind, namespace, name, ...(previous ? { previous: 'true' } : { follow: 'true' }) });
  if (q('lines')) {
    params.set('lines', q('lines'));
  }
  const log = useLog(params.toString());
  const pods = [...new Set((log.containers ?? []).map((c) => c.pod))];
  const wanted = useMemo(() => search(q('q')), [q('q')]);
  const found = useMemo(
    () => log.lines.filter((l) => (!q('pod') || l.pod === q('pod')) && (!q('container') || l.container === q('container')) && matches(wanted, l)),
    [log.lines, wanted, q('pod'), q('container')],
  );
  const shown = useMemo(() => (q('level') ? found.filter((l) => l.level === q('level')) : found), [found, q('level')]);
  const actions = (
    <span class="end buttons">
      <span class="switch" role="group" aria-label="Containers">
        <button aria-pressed={!previous} onClick={() => setQuery(place, { previous: '' })}>
          Running
        </button>
        <button aria-pressed={previous} title="Of containers that ended before they were started again" onClick={() => setQuery(place, { previous: 'true' })}>
          Previous
        </button>
      </span>
      {!isPart && <CopyLink />}
      <button onClick={() => save(`${namespace}-${name}.log`, fileOf(shown))} disabled={shown.length === 0}>
        <Icon of={Download} size={14} /> Download
      </button>
    </span>
  );
  return (
    <>
      {isPart ? (
        <div class="part-actions">{actions}</div>
      ) : (
        <Heading title="Logs" icon={<Icon of={ScrollText} size={20} />} sub={<Owner id={id} />}>
          {actions}
        </Heading>
      )}
      <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
        <input type="search" class="wide" aria-label="Search" placeholder="Words, &quot;a phrase&quot;, -left -out" value={q('q')}
          onInput={(e) => setQuery(place, { q: e.currentTarget.value })} />
        <Levels lines={found} chosen={q('level')} onChoose={(level) => setQuery(place, { level })} />
        <Container log={log} place={place} />
      </form>
      <Pods pods={pods} chosen={q('pod')} onChoose={(pod) => setQuery(place, { pod: pod === q('pod') ? '' : pod })} />
      {log.broken && <p role="status" class="alert waiting">The stream broke. It is opened again, and goes on where it ended.</p>}
      {log.omitted > 0 && <p class="alert waiting">{plural(log.omitted, 'more container')} not read: open the log of one workload or Pod.</p>}
      {log.problems.map((p) => (
        <Problem error={new Error((p.pod ? `${p.pod}, ${p.container}: ` : '') + p.error)} />
      ))}
      <Box log={log} lines={shown} pods={pods} words={wanted.has} />
    </>
  );
}

function Owner({ id }: { id: string }) {
  const [kind = '', namespace = '', name = ''] = id.split('/');
  const ours = ['Kustomization', 'HelmRelease'].includes(kind);
  return (
    <span class="line">
      <KindIcon kind={kind} /> {ours ? <Link to={objectPath(id)}>{name}</Link> : <strong>{name}</strong>}
      {namespace} · {kind}
      <Link to="/logs">another workload</Link>
    </span>
  );
}

function CopyLink() {
  const [said, setSaid] = useState('Copy link');
  const copy = () => navigator.clipboard?.writeText(location.href).then(() => setSaid('Copied'), () => setSaid('The browser refused'));
  return (
    <button title="The link shows others what you see, with their own rights" onClick={() => void copy()}>
      <Icon of={Link2} size={14} /> {said}
    </button>
  );
}

// fileOf returns lines as a text file.
function fileOf(lines: Line[]): Blob {
  return new Blob([lines.map((l) => `${l.at} ${l.pod} ${l.container} ${l.text}\n`).join('')], { type: 'text/plain' });
}

function Levels({ lines, chosen, onChoose }: { lines: Line[]; chosen: string; onChoose: (level: string) => void }) {
  const counts = useMemo(() => {
    const n: Partial<Record<Level, number>> = {};
    lines.forEach((l) => l.level && (n[l.level] = (n[l.level] ?? 0) + 1));
    return n;
  }, [lines]);
  return (
    <div class="chips" role="group" aria-label="Level">
      <button type="button" aria-pressed={!chosen} onClick={() => onChoose('')}>
        all
      </button>
      {levels.filter((l) => counts[l] || l === chosen).map((l) => (
        <button type="button" aria-pressed={l === chosen} onClick={() => onChoose(l === chosen ? '' : l)}>
          {l} {counts[l] ?? 0}
        </button>
      ))}
    </div>
  );
}

function Container({ log, place }: { log: Stream; place: Place }) {
  const names = [...new Set((log.containers ?? []).map((c) => c.container))];
  return names.length > 1 ? (
    <label>
      Container
      <select value={place.query.get('container') ?? ''} onChange={(e) => setQuery(place, { container: e.currentTarget.value })}>
        <option value="">all</option>
        {names.map((n) => (
          <option value={n}>{n}</option>
        ))}
      </select>
    </label>
  ) : null;
}

function Pods({ pods, chosen, onChoose }: { pods: string[]; chosen: string; onChoose: (pod: string) => void }) {
  return (
    <div class="chips pods" role="group" aria-label="Pods">
      {pods.map((p, i) => (
        <button type="button" aria-pressed={p === chosen} onClick={() => onChoose(p)} class={`pod-${i % colours}`}>
          {p}
        </button>
      ))}
    </div>
  );
}

// Box is the lines. It follows while its end is in sight.
function Box({ log, lines, pods, words }: { log: Stream; lines: Line[]; pods: string[]; words: string[] }) {
  const box = useRef<HTMLDivElement>(null);
  const [follows, setFollows] = useState(true);
  const [open, setOpen] = useState<Set<number>>(new Set());
  const rows = useRows(lines.length, rowHeight, () => box.current, (i) => lines[i]?.number ?? i);
  const height = rows.getTotalSize();
  useEffect(() => {
    if (follows && box.current) {
      box.current.scrollTop = box.current.scrollHeight;
    }
  }, [lines, follows, height]);
  const scrolled = () => {
    const b = box.current;
    if (b) {
      setFollows(b.scrollHeight - b.scrollTop - b.clientHeight < nearEnd);
    }
  };
  const toggle = (n: number) => {
    const now = new Set(open);
    if (!now.delete(n)) {
      now.add(n);
    }
    setOpen(now);
  };
  return (
    <section class="card">
      <header>
        <span role="status" class="quiet">
          {plural(lines.length, 'line')}
          {log.lines.length !== lines.length && ` of ${log.lines.length.toLocaleString('en')}`}
          {log.lines.length === maxLines && ', older ones are dropped'}
          {log.ended ? ' · the log ended' : ' · live'}
        </span>
        {!follows && (
          <span class="end">
            <button class="small" onClick={() => setFollows(true)}>
              <Icon of={ChevronDown} size={14} /> Follow
            </button>
          </span>
        )}
      </header>
      <div class="log" ref={box} tabIndex={0} role="region" aria-label="Log" onWheel={scrolled} onScroll={scrolled}>
        <div style={{ height, position: 'relative' }}>
          {rows.getVirtualItems().map((v) => {
            const line = lines[v.index];
            return (
              line && (
                <div key={v.key} data-index={v.index} ref={rows.measureElement} style={{ transform: `translateY(${v.start}px)` }}
                  class={`pod-${Math.max(0, pods.indexOf(line.pod)) % colours} ${line.level ?? ''}`}>
                  <Row line={line} words={words} open={open.has(line.number)} onToggle={() => toggle(line.number)} />
                </div>
              )
            );
          })}
        </div>
      </div>
      {lines.length === 0 && (log.containers || log.ended) && (
        <Empty icon={ScrollText}>
          {log.lines.length ? 'No line matches.' : log.containers?.length === 0 ? 'It has no pods now.' : log.ended && !log.problems.length ? 'The log is empty.' : 'No line yet.'}
        </Empty>
      )}
      {!log.containers && !log.ended && <Loading />}
    </section>
  );
}

function Row({ line, words, open, onToggle }: { line: Line; words: string[]; open: boolean; onToggle: () => void }) {
  return (
    <>
      <time title={`${line.at}, ${line.pod}, ${line.container}`}>{clock(line.at)}</time>
      <span class="level">{line.level}</span>
      <span>
        {line.json !== undefined && (
          <button class="small ghost" aria-expanded={open} aria-label="All fields" onClick={onToggle}>
            <Icon of={open ? ChevronDown : ChevronRight} size={12} />
          </button>
        )}
      </span>
      <span class="text">
        <Marked text={line.message} words={words} />
        {line.fields.map(([k, v]) => (
          <span class="quiet">
            {' '}
            {k}=<Marked text={v} words={words} />
          </span>
        ))}
        {open && <code>{JSON.stringify(line.json, null, 2)}</code>}
      </span>
    </>
  );
}

function Marked({ text, words }: { text: string; words: string[] }) {
  return <>{marked(text, words).map((part, i) => (i % 2 ? <mark>{part}</mark> : part))}</>;
}

// clock returns the local time of day of a line.
function clock(at: string): string {
  const t = new Date(at.slice(0, 23) + 'Z');
  return at ? t.toTimeString().slice(0, 8) + at.slice(19, 23) : '';
}

interface WorkloadNames {
  workloads: { id: string; application?: string }[];
  total: number;
}

// Choose lists the workloads whose logs can be read.
function Choose() {
  const { data, error } = useData<WorkloadNames>('workloads?limit=1000', () => false);
  const [words, setWords] = useState('');
  const found = data?.workloads.filter((w) => w.id.toLowerCase().includes(words.toLowerCase()));
  return (
    <>
      <Heading title="Logs" sub="of all pods of a workload, in one stream" />
      <div class="filters">
        <input type="search" class="wide" aria-label="Search" placeholder="Deployment, namespace or name" value={words} onInput={(e) => setWords(e.currentTarget.value)} />
      </div>
      {!data && <Loading error={error} />}
      {found?.length === 0 && <Empty>No workload matches.</Empty>}
      <section class="card">
        <ul class="plain rows">
          {found?.slice(0, 200).map((w) => {
            const [kind = '', namespace = '', name = ''] = w.id.split('/');
            return (
              <li class="line">
                <KindIcon kind={kind} />
                <Link to={logsPath(w.id)} class="name" data-row>
                  {name}
                </Link>
                <span class="quiet">
                  {namespace} · {kind}
                </span>
              </li>
            );
          })}
        </ul>
      </section>
    </>
  );
}
