import { base } from './base';
import {
  Boxes, CircleHelp, GitCompareArrows, GitPullRequest, LayoutDashboard, LifeBuoy, List, LogOut, LucideIcon, Package, Rocket, ScrollText, Search, Server, ShieldCheck, SunMoon,
  Waypoints,
} from 'lucide-preact';
import { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { logOut, Me, Overview } from './api';
import { Icon } from './icons';
import { Dialog, initials, plural } from './parts';
import { Link, Place } from './router';
import { applyTheme, chosenTheme, Theme } from './theme';

export interface PageName {
  to: string;
  name: string;
  icon: LucideIcon;
  key: string; // after g
}

// pages are those of the side bar.
export const pages: PageName[] = [
  { to: '/', name: 'Overview', icon: LayoutDashboard, key: 'o' },
  { to: '/applications', name: 'Applications', icon: Boxes, key: 'a' },
  { to: '/workloads', name: 'Workloads', icon: Rocket, key: 'd' },
  { to: '/graph', name: 'Graph', icon: Waypoints, key: 'r' },
  { to: '/gates', name: 'Gates', icon: ShieldCheck, key: 'g' },
  { to: '/changes', name: 'Changes', icon: GitCompareArrows, key: 'c' },
  { to: '/images', name: 'Images', icon: Package, key: 'i' },
  { to: '/clusters', name: 'Clusters', icon: Server, key: 's' },
  { to: '/why', name: 'Why is it not live?', icon: CircleHelp, key: 'w' },
];

// reviews is the page of a server that reviews pull requests.
const reviews: PageName = { to: '/reviews', name: 'Reviews', icon: GitPullRequest, key: 'p' };

// more are pages that the side bar shows elsewhere, or that others lead to.
export const more: PageName[] = [
  reviews,
  { to: '/objects', name: 'Objects', icon: List, key: 'b' },
  { to: '/logs', name: 'Logs', icon: ScrollText, key: 'l' },
  { to: '/explain', name: 'Explain a code', icon: LifeBuoy, key: 'e' },
];

// counts returns what the side bar says of each page: how many applications there are, and what waits at gates.
function counts(data?: Overview): Record<string, [number, string]> {
  const applications = (data?.byKind ?? []).filter((g) => g.name === 'Kustomization' || g.name === 'HelmRelease');
  const total = applications.reduce((n, g) => n + Object.values(g.counts).reduce((a, b) => a + b, 0), 0);
  return {
    '/applications': [total, plural(total, 'application')],
    '/gates': [data?.atGates ?? 0, plural(data?.atGates ?? 0, 'change waits', 'changes wait')],
  };
}

// Side is the side bar: the pages, with counts of what needs somebody, and who is logged in.
export function Side({ place, me, overview }: { place: Place; me?: Me; overview?: Overview }) {
  const count = counts(overview);
  return (
    <aside class="side" aria-label="Sluice">
      <Link to="/" class="brand" aria-label="Sluice">
        <img src="/icon.svg" width="24" height="24" alt="" />
        <span>Sluice</span>
      </Link>
      {me && (
        <div class="place" title={`Sluice ${me.version}`}>
          <Icon of={Server} />
          <span>
            <strong>{me.cluster || 'this cluster'}</strong>
            <small>
              {me.kubernetes ? `${me.kubernetes} · ` : ''}
              {plural(count['/applications']?.[0] ?? 0, 'app')}
            </small>
          </span>
        </div>
      )}
      <nav aria-label="Pages">
        {(me?.reviews ? [...pages, reviews] : pages).map((p) => {
          const [n, words] = count[p.to] ?? [0, ''];
          return (
            <Link to={p.to} title={words || undefined} aria-current={isAt(place, p.to) ? 'page' : undefined}>
              <Icon of={p.icon} size={18} />
              <span class="word">{p.name}</span>
              {n > 0 && (
                <span class="count" aria-hidden="true">
                  {n}
                </span>
              )}
            </Link>
          );
        })}
      </nav>
      <nav class="foot" aria-label="Help">
        <Link to="/explain" aria-current={isAt(place, '/explain') ? 'page' : undefined}>
          <Icon of={LifeBuoy} size={18} />
          <span class="word">Explain a code</span>
        </Link>
      </nav>
      {me && <User me={me} />}
    </aside>
  );
}

function isAt(place: Place, to: string): boolean {
  return place.path === to || (to === reviews.to && place.path.startsWith('/reviews/')) || (to === '/workloads' && place.path === '/logs') || (to === '/applications' && (place.path === '/objects' || place.path.startsWith('/object/')));
}

// User shows who is logged in, and switches the theme.
function User({ me }: { me: Me }) {
  const [error, setError] = useState<Error>();
  const leave = async () => {
    try {
      await logOut();
      location.assign(base + '/');
    } catch (e) {
      setError(e as Error);
    }
  };
  return (
    <div class="person">
      {error && <p role="alert">{error.message}</p>}
      <div class="user">
        <div class="avatar" aria-hidden="true">
          {initials(me.user)}
        </div>
        <span>
          <strong title={me.user}>{me.user}</strong>
          <small>Sluice {me.version}</small>
        </span>
        <div class="end">
          <ThemeSwitch />
          {me.logout && (
            <button class="ghost" aria-label="Log out" title="Log out" onClick={() => void leave()}>
              <Icon of={LogOut} />
            </button>
          )}
        </div>
      </div>
    </div>
  );
}

const next: Record<Theme, Theme> = { system: 'light', light: 'dark', dark: 'system' };

function ThemeSwitch() {
  const [theme, setTheme] = useState(chosenTheme());
  const change = () => {
    applyTheme(next[theme]);
    setTheme(next[theme]);
  };
  return (
    <button class="ghost" aria-label={`Theme: ${theme}`} title={`Theme: ${theme}. Change to ${next[theme]}`} onClick={change}>
      <Icon of={SunMoon} />
    </button>
  );
}

// Top is the bar above the page: where it is, the search, and whether what is shown is live.
export function Top({ crumbs, connected, onFind }: { crumbs: [string, string?][]; connected: boolean; onFind: () => void }) {
  return (
    <header class="top">
      <nav class="crumbs" aria-label="Path">
        {crumbs.map(([name, to], i) => (
          <>
            {i > 0 && <span class="quiet">/</span>}
            {to ? <Link to={to}>{name}</Link> : <strong>{name}</strong>}
          </>
        ))}
      </nav>
      <button class="find" onClick={onFind}>
        <Icon of={Search} />
        <span>Search or ask: a commit, image, app, reason…</span>
        <kbd>⌘K</kbd>
      </button>
      <span class="stream" title={connected ? 'Changes come to this page at once' : 'What is shown may be outdated'}>
        <span class={`dot ${connected ? 'ready' : 'waiting'}`} />
        <span>{connected ? 'Live' : 'Connecting'}</span>
      </span>
    </header>
  );
}

const keys: [string, string][] = [
  ['⌘ K, Ctrl K or /', 'search, and commands'],
  ...[...pages, ...more].map((p): [string, string] => [`g ${p.key}`, `go to ${p.name}`]),
  ['j, k', 'next, previous row of a list'],
  ['?', 'this list'],
];

// Keys lists the keys of the UI.
export function Keys({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl class="keys">
        {keys.map(([key, does]) => (
          <>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{does}</dd>
          </>
        ))}
      </dl>
    </Dialog>
  );
}

// Shell is the frame of all pages.
export function Shell(props: { side: ComponentChildren; top: ComponentChildren; children: ComponentChildren }) {
  return (
    <div class="shell">
      <a class="skip" href="#main">
        Skip to the content
      </a>
      {props.side}
      <div class="body">
        {props.top}
        <main id="main" tabIndex={-1}>
          {props.children}
        </main>
      </div>
    </div>
  );
}
