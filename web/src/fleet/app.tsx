import { GitCommitHorizontal, LogOut, Server, ShieldCheck } from 'lucide-preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Failure, get, logIn, logOut, Methods } from '../api';
import { useTitle } from '../hooks';
import { Icon } from '../icons';
import { Loading, plural, Problem } from '../parts';
import { go, Link, Place, usePlace } from '../router';
import { Shell, ThemeSwitch } from '../shell';
import { Clusters } from './clusters';
import { Commits } from './commits';
import { Cluster, inbox, List, merge } from './fleet';
import { Inbox } from './inbox';
import { OneCluster } from './one';

const waitTime = 25; // seconds that the hub waits for a change
const retryDelay = 3000; // milliseconds after an error

export interface Known {
  clusters?: Cluster[];
  error?: Error;
  connected: boolean;
}

// read asks the hub for all clusters, or after a version for what changed, as soon as something did.
async function read(since: string, signal: AbortSignal): Promise<List> {
  let response: Response;
  try {
    response = await fetch('/fleet/v1/clusters' + (since ? `?since=${encodeURIComponent(since)}&wait=${waitTime}s` : ''), { signal });
  } catch (e) {
    throw signal.aborted ? e : new Failure('The hub cannot be reached. What you see may be outdated; the clusters go on without it.', 0);
  }
  const body = (await response.json().catch(() => ({ error: `The hub answered ${response.status}.` }))) as List & { error?: string; hint?: string };
  if (!response.ok) {
    throw new Failure([body.error, body.hint].filter(Boolean).join('. '), response.status);
  }
  return body;
}

// useFleet returns all clusters, and follows their changes. One answer at a time is awaited.
function useFleet(): Known {
  const [known, setKnown] = useState<Known>({ connected: true });
  useEffect(() => {
    const control = new AbortController();
    let version = '';
    let clusters: Cluster[] | undefined;
    const follow = async () => {
      while (!control.signal.aborted) {
        try {
          const answer = await read(version, control.signal);
          const isSame = answer.partial && !answer.clusters.length && !answer.removed?.length;
          version = answer.version;
          if (!isSame || !clusters) {
            clusters = merge(clusters ?? [], answer);
          }
          setKnown({ clusters, connected: true });
        } catch (error) {
          if (control.signal.aborted) {
            return;
          }
          setKnown({ clusters, error: error as Error, connected: false });
          if (error instanceof Failure && error.status === 401 && !clusters) {
            return; // the page of the login loads anew
          }
          await new Promise((done) => window.setTimeout(done, retryDelay));
        }
      }
    };
    void follow();
    return () => control.abort();
  }, []);
  return known;
}

const pages = [
  { to: '/', name: 'Clusters', icon: Server },
  { to: '/commits', name: 'Commits', icon: GitCommitHorizontal },
  { to: '/gates', name: 'Gates', icon: ShieldCheck },
];

// Fleet is the pages of a hub about all clusters.
export function Fleet() {
  const place = usePlace();
  const { clusters, error, connected } = useFleet();
  if (error instanceof Failure && error.status === 401 && !clusters) {
    return (
      <main id="main">
        <LogIn error={error} />
      </main>
    );
  }
  const page = pages.find((p) => p.to === place.path);
  const one = place.path.startsWith('/summary/') ? decodeURIComponent(place.path.slice('/summary/'.length)) : undefined;
  return (
    <Shell
      side={<Side place={place} clusters={clusters} />}
      top={
        <header class="top">
          <nav class="crumbs" aria-label="Path">
            {one && (
              <>
                <Link to="/">Clusters</Link>
                <span class="quiet">/</span>
              </>
            )}
            <strong>{one ?? page?.name ?? 'Fleet'}</strong>
          </nav>
          <span class="stream end" title={connected ? 'Changes come to this page at once' : 'What is shown may be outdated'}>
            <span class={`dot ${connected ? 'ready' : 'waiting'}`} />
            <span>{connected ? 'Live' : 'Connecting'}</span>
          </span>
        </header>
      }
    >
      <Problem error={clusters && error} />
      {!clusters ? <Loading error={error} /> : one ? <OneCluster name={one} known={clusters.find((c) => c.name === one)} /> : <Page place={place} clusters={clusters} />}
    </Shell>
  );
}

function Page({ place, clusters }: { place: Place; clusters: Cluster[] }) {
  switch (place.path) {
    case '/':
      return <Clusters place={place} clusters={clusters} />;
    case '/commits':
      return <Commits place={place} clusters={clusters} />;
    case '/gates':
      return <Inbox place={place} clusters={clusters} />;
  }
  return (
    <>
      <h1>Not found</h1>
      <p>
        There is no such page. <Link to="/">Go to the clusters</Link>.
      </p>
    </>
  );
}

function Side({ place, clusters }: { place: Place; clusters?: Cluster[] }) {
  const waits = clusters ? inbox(clusters).length : 0;
  const counts: Record<string, number> = { '/': clusters?.length ?? 0, '/gates': waits };
  return (
    <aside class="side" aria-label="Sluice">
      <Link to="/" class="brand" aria-label="Sluice">
        <img src="/icon.svg" width="24" height="24" alt="" />
        <span>Sluice</span>
      </Link>
      <div class="place">
        <Icon of={Server} />
        <span>
          <strong>Fleet</strong>
          <small>{clusters ? plural(clusters.length, 'cluster') : 'loading'}</small>
        </span>
      </div>
      <nav aria-label="Pages">
        {pages.map((p) => (
          <Link to={p.to} aria-current={place.path === p.to || (p.to === '/' && place.path.startsWith('/summary/')) ? 'page' : undefined}>
            <Icon of={p.icon} size={18} />
            <span class="word">{p.name}</span>
            {!!counts[p.to] && (
              <span class="count" aria-hidden="true">
                {counts[p.to]}
              </span>
            )}
          </Link>
        ))}
      </nav>
      <div class="person bottom">
        <div class="user">
          <span title="It changes nothing in a cluster">
            <small>A hub only watches.</small>
          </span>
          <div class="end">
            <ThemeSwitch />
            <button class="ghost" aria-label="Log out" title="Log out" onClick={() => void logOut().finally(() => location.assign('/'))}>
              <Icon of={LogOut} />
            </button>
          </div>
        </div>
      </div>
    </aside>
  );
}

// LogIn offers what the hub offers: a login provider, and the token of a user of the hub's cluster.
function LogIn({ error }: { error: Error }) {
  useTitle('Log in');
  const [methods, setMethods] = useState<Methods>();
  const [failed, setFailed] = useState<Error>();
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    get<Methods>('login').then(setMethods, setFailed);
  }, []);
  const submit = async (e: SubmitEvent) => {
    e.preventDefault();
    try {
      await logIn(field.current?.value.trim() ?? '');
      go(location.pathname, true);
      location.reload();
    } catch (e) {
      setFailed(e as Error);
    }
  };
  return (
    <div class="login card pad">
      <h1>Log in to the hub</h1>
      <p>You see the summaries of clusters. In a cluster you do what your rights there allow, and some ask you to log in again.</p>
      {methods?.oidc && (
        <p>
          <a class="button primary" href={'/login/oidc?next=' + encodeURIComponent(location.pathname + location.search)}>
            Log in with your organization
          </a>
        </p>
      )}
      {methods?.token && (
        <form onSubmit={(e) => void submit(e)} class="ask">
          <label>
            Token of a ServiceAccount of the hub's cluster
            <input ref={field} name="token" type="password" autoComplete="off" required maxLength={2500} />
          </label>
          <p class="quiet">
            Create one with <code>kubectl create token NAME --namespace NAMESPACE</code>. It needs the right to list clusters: see ClusterRole <code>sluice-fleet-viewer</code>.
          </p>
          <div class="buttons">
            <button type="submit" class={methods.oidc ? undefined : 'primary'}>
              Log in
            </button>
          </div>
        </form>
      )}
      <Problem error={failed} />
      {!failed && <p class="visually-hidden">{error.message}</p>}
    </div>
  );
}
