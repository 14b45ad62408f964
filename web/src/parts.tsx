import { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Counts, Failure, Item, path, State, states } from './api';
import { useNow } from './hooks';
import { Link } from './router';

const symbols: Record<State, string> = { failed: '✕', waiting: '◷', progressing: '↻', suspended: '‖', ready: '✓' };

// Badge shows a state by word, symbol and colour.
export function Badge({ state }: { state: State }) {
  return (
    <span class={`badge ${state}`}>
      <span aria-hidden="true">{symbols[state]}</span> {state}
    </span>
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

// Brief shows a text with short digests; its title has the whole text.
export function Brief({ text }: { text?: string }) {
  const brief = (text ?? '').replace(/\b([0-9a-f]{8})(?:[0-9a-f]{32}|[0-9a-f]{56})\b/g, '$1');
  return <span title={brief === text ? undefined : text}>{brief}</span>;
}

// Revision shows a revision with a short digest.
export function Revision({ of }: { of?: string }) {
  return of ? (
    <code title={of} class="revision">
      {shortRevision(of)}
    </code>
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

// ItemLine is an object in a list: state, name, revision and message.
export function ItemLine({ item }: { item: Item }) {
  return (
    <div class="line">
      <Badge state={item.state} />
      <ObjectLink id={item.id} />
      <Revision of={item.revision} />
      <span class="quiet message">{item.message}</span>
    </div>
  );
}

// Section is a part of a page with a heading.
export function Section({ title, extra, children }: { title: string; extra?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section>
      <header class="section">
        <h2>{title}</h2>
        {extra}
      </header>
      {children}
    </section>
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
      {error.message}
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

// Copy shows text of any size in a box that scrolls.
export function Text({ children, label }: { children: string; label: string }) {
  return (
    <pre tabIndex={0} aria-label={label}>
      {children}
    </pre>
  );
}

// DiffText shows a diff; its signs are in the text, so that colours are not needed to read it.
export function DiffText({ children, label }: { children: string; label: string }) {
  const looks: Record<string, string> = { '+': 'added', '-': 'removed', '~': 'changed' };
  return (
    <pre tabIndex={0} aria-label={label} class="diff">
      {children.split('\n').map((line) => (
        <span class={looks[line[0] ?? '']}>{line + '\n'}</span>
      ))}
    </pre>
  );
}

// Tabs shows one of several parts.
export function Tabs({ parts }: { parts: { name: string; show: () => ComponentChildren }[] }) {
  const [index, setIndex] = useState(0);
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
            {p.name}
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
