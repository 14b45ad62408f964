import { base } from './base';
import { CircleCheck, LucideIcon } from 'lucide-preact';
import { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Counts, Failure, Item, path, State, states } from './api';
import { useNow } from './hooks';
import { Icon, KindIcon, StateIcon } from './icons';
import { codes } from './inline';
import { partsOf } from './yaml';
import { Link, Place, setQuery } from './router';

// Pill shows a state by word, icon and colour. Another word than that of the state may be shown.
export function Pill({ state, children }: { state: State; children?: ComponentChildren }) {
  return (
    <span class={`pill ${state}`}>
      <StateIcon state={state} size={13} /> {children ?? state}
    </span>
  );
}

// Dot shows a state in tables and trees, where its word stands beside it or is read aloud.
export function Dot({ state }: { state: State }) {
  return (
    <>
      <span class={`dot ${state}`} title={state} aria-hidden="true" />
      <span class="visually-hidden">{state}</span>
    </>
  );
}

// Health shows counts by state as a bar, with the numbers in words.
export function Health({ counts }: { counts: Counts }) {
  const total = states.reduce((n, s) => n + (counts[s] ?? 0), 0);
  const words = states.filter((s) => counts[s]).map((s) => `${counts[s]} ${s}`);
  return (
    <span class="health">
      <span class="bar" aria-hidden="true">
        {states
          .filter((s) => counts[s])
          .map((s) => (
            <span class={s} style={{ flexGrow: (counts[s] ?? 0) / total }} />
          ))}
      </span>
      <span class="quiet">{words.join(', ') || 'none'}</span>
    </span>
  );
}

// Ago shows how long ago a time was, with the exact time as a title.
export function Ago({ at }: { at?: string }) {
  const now = useNow();
  if (!at || at.startsWith('0001-')) {
    return null;
  }
  const seconds = Math.round((now - Date.parse(at)) / 1000);
  return (
    <time dateTime={at} title={new Date(at).toLocaleString()}>
      {span(Math.abs(seconds)) + (seconds < -5 ? ' from now' : ' ago')}
    </time>
  );
}

function span(seconds: number): string {
  if (seconds < 5) {
    return 'a moment';
  }
  // Of a few days or hours, the next smaller unit matters.
  return seconds >= 5 * 86400 ? Math.floor(seconds / 86400) + 'd' : duration(seconds < 3600 ? minutes(seconds) : seconds * 1000);
}

// minutes returns seconds in milliseconds; above a minute, without the seconds.
function minutes(seconds: number): number {
  return (seconds < 60 ? seconds : seconds - (seconds % 60)) * 1000;
}

// duration returns milliseconds in words, such as 1m 20s.
export function duration(ms: number): string {
  if (ms < 1000) {
    return Math.round(ms) + 'ms';
  }
  const seconds = Math.floor(ms / 1000);
  const parts: [number, string][] = [
    [Math.floor(seconds / 86400), 'd'],
    [Math.floor(seconds / 3600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'm'],
    [seconds % 60, 's'],
  ];
  const shown = parts.slice(parts.findIndex(([n]) => n > 0)).slice(0, 2);
  return shown
    .filter(([n]) => n > 0)
    .map(([n, unit]) => n + unit)
    .join(' ');
}

// shortRevision shortens the digest in a revision.
export function shortRevision(revision?: string): string {
  return (revision ?? '').replace(/([0-9a-f]{8})[0-9a-f]{24,}$/, '$1');
}

// Brief shows a text with short digests and links of its codes; its title has the whole text.
export function Brief({ text }: { text?: string }) {
  const brief = (text ?? '').replace(/\b([0-9a-f]{8})(?:[0-9a-f]{32}|[0-9a-f]{56})\b/g, '$1');
  return (
    <span title={brief === text ? undefined : text}>
      {codes(brief).map((p) => (p.kind === 'reason' ? <Link to={'/explain?q=' + p.text}>{p.text}</Link> : p.text))}
    </span>
  );
}

// Revision shows a revision with a short digest. A click copies the whole one.
export function Revision({ of }: { of?: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => {
    navigator.clipboard?.writeText(of ?? '').then(
      () => {
        setCopied(true);
        window.setTimeout(() => setCopied(false), 1500);
      },
      () => {}, // the whole revision is in the title, too
    );
  };
  return of ? (
    <button type="button" class="revision" title={`${of} (click to copy)`} onClick={copy}>
      {copied ? 'copied' : shortRevision(of)}
    </button>
  ) : null;
}

// objectPath returns the address of the page of an object.
export function objectPath(id: string): string {
  return '/object/' + path(id);
}

// ObjectLink is a link to the page of an object.
export function ObjectLink({ id }: { id: string }) {
  return <Link to={objectPath(id)}>{id}</Link>;
}

// ObjectName is an object in a list: icon, name, namespace and kind.
export function ObjectName({ id }: { id: string }) {
  const [kind = '', namespace = '', ...rest] = id.split('/');
  return (
    <span class="line">
      <KindIcon kind={kind} />
      <Link to={objectPath(id)} class="name" aria-label={id}>
        {rest.join('/')}
      </Link>
      <span class="quiet">
        {namespace} · {kind}
      </span>
    </span>
  );
}

// ItemLine is an object in a list, with its state, revision and message.
export function ItemLine({ item }: { item: Item }) {
  return (
    <>
      <div class="line">
        <ObjectName id={item.id} />
        <Pill state={item.state} />
        <Revision of={item.revision} />
        <span class="end">
          <Ago at={item.changed ?? item.since} />
        </span>
      </div>
      <p class="quiet long">
        <Brief text={item.message} />
      </p>
    </>
  );
}

// Card is a part of a page with a heading.
export function Card({ title, extra, end, children }: { title: ComponentChildren; extra?: ComponentChildren; end?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="card">
      <header>
        <h2>{title}</h2>
        {extra}
        {end && <span class="end">{end}</span>}
      </header>
      {children}
    </section>
  );
}

// Empty says that there is nothing, and what that means.
export function Empty({ icon, children }: { icon?: LucideIcon; children: ComponentChildren }) {
  return (
    <div class="empty">
      <Icon of={icon ?? CircleCheck} size={18} /> <span>{children}</span>
    </div>
  );
}

// Heading is the title of a page, with what can be done on its right.
export function Heading({ title, sub, icon, children }: { title: string; sub?: ComponentChildren; icon?: ComponentChildren; children?: ComponentChildren }) {
  return (
    <div class="heading">
      {icon && <span class="tile-icon">{icon}</span>}
      <div>
        <h1>{title}</h1>
        {sub && <div class="quiet">{sub}</div>}
      </div>
      {children}
    </div>
  );
}

// Author shows the name of an author; the title has the address.
export function Author({ of }: { of?: string }) {
  return of ? <span title={of}>{of.replace(/\s*<[^>]*>$/, '')}</span> : null;
}

// initials returns up to two letters that stand for a person.
export function initials(user: string): string {
  const words = user.replace(/.*[:/]/, '').split(/[^a-zA-Z0-9]+/).filter(Boolean);
  return words.slice(0, 2).map((w) => w[0]?.toUpperCase()).join('') || '?';
}

// plural returns a number with its noun.
export function plural(n: number, one: string, many = one + 's'): string {
  return `${n.toLocaleString('en')} ${n === 1 ? one : many}`;
}

// LogInElsewhere leads to the login in another tab, so that this one keeps what was typed.
export function LogInElsewhere() {
  return (
    <a href={base + '/'} target="_blank" rel="noopener">
      Log in in another tab.
    </a>
  );
}

// Problem says that something failed.
export function Problem({ error }: { error?: Error }) {
  if (!error) {
    return null;
  }
  const login = error instanceof Failure && error.status === 401;
  return (
    <p role="alert" class="alert">
      {login ? 'You are not logged in: ' : ''}
      {error.message} {login && <LogInElsewhere />}
    </p>
  );
}

// Loading is shown until data is there.
export function Loading({ error }: { error?: Error }) {
  return error ? <Problem error={error} /> : <p class="quiet">Loading…</p>;
}

// Dialog asks before an action. It is modal: the keyboard stays inside, and Escape closes it.
export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    ref.current?.showModal();
  }, []);
  return (
    <dialog ref={ref} aria-label={props.title} onClose={props.onClose}>
      <h2>{props.title}</h2>
      {props.children}
    </dialog>
  );
}

// Text shows text of any size in a box that scrolls.
export function Text({ children, label }: { children: string; label: string }) {
  return (
    <pre tabIndex={0} aria-label={label}>
      {children}
    </pre>
  );
}

const maxHighlighted = 4000; // lines

// YAMLText shows YAML with its keys and values highlighted. A very long one is shown as it is.
export function YAMLText({ children, label }: { children: string; label: string }) {
  const lines = children.split('\n');
  if (lines.length > maxHighlighted) {
    return <Text label={label}>{children}</Text>;
  }
  return (
    <pre tabIndex={0} aria-label={label} class="yaml">
      {lines.map((line) => (
        <>
          {partsOf(line).map((p) => (p.look ? <span class={p.look}>{p.text}</span> : p.text))}
          {'\n'}
        </>
      ))}
    </pre>
  );
}

// DiffText shows a diff; its signs are in the text, so that colours are not needed to read it. Lines that start in the
// first column and are no change name an object.
export function DiffText({ children, label }: { children: string; label: string }) {
  const look = (line: string) => {
    const sign = line.trimStart()[0] ?? '';
    return { '+': 'added', '-': 'removed', '~': 'changed' }[sign] ?? (/^\S/.test(line) ? 'object' : undefined);
  };
  return (
    <pre tabIndex={0} aria-label={label} class="diff">
      {children.split('\n').map((line) => (
        <span class={look(line)}>{line + '\n'}</span>
      ))}
    </pre>
  );
}

// Tabs shows one of several parts. With a place, the address has which.
export function Tabs({ parts, place }: { parts: { name: string; count?: number; show: () => ComponentChildren }[]; place?: Place }) {
  const [chosen, setChosen] = useState('');
  const index = Math.max(0, parts.findIndex((p) => p.name === (place ? place.query.get('tab') : chosen)));
  const setIndex = (i: number) => (place ? setQuery(place, { tab: parts[i]?.name ?? '' }) : setChosen(parts[i]?.name ?? ''));
  const move = (e: KeyboardEvent) => {
    const step = e.key === 'ArrowRight' ? 1 : e.key === 'ArrowLeft' ? -1 : 0;
    if (step) {
      const next = (index + step + parts.length) % parts.length;
      setIndex(next);
      const list = (e.currentTarget as HTMLElement).querySelectorAll('button');
      list[next]?.focus();
    }
  };
  return (
    <>
      <div role="tablist" class="tabs" onKeyDown={move}>
        {parts.map((p, i) => (
          <button role="tab" aria-selected={i === index} tabIndex={i === index ? 0 : -1} onClick={() => setIndex(i)}>
            {p.name} {!!p.count && <span class="count">{p.count}</span>}
          </button>
        ))}
      </div>
      <div role="tabpanel">{parts[index]?.show()}</div>
    </>
  );
}

// web returns a URL if a browser can open it safely.
function web(url?: string): string | undefined {
  return url?.startsWith('https://') || url?.startsWith('http://') ? url : undefined;
}

// Outside is a link to another site, if a browser can open it safely.
export function Outside({ to, children }: { to?: string; children: string }) {
  const address = web(to);
  return address ? (
    <a href={address} rel="noreferrer noopener" target="_blank">
      {children} (new tab)
    </a>
  ) : null;
}
