import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Failure, Live, logOut, Me } from './api';
import { LiveContext, useData } from './hooks';
import { Changes } from './pages/changes';
import { Gates } from './pages/gates';
import { Graph } from './pages/graph';
import { Images } from './pages/images';
import { Login } from './pages/login';
import { ObjectPage } from './pages/object';
import { Objects } from './pages/objects';
import { Overview } from './pages/overview';
import { Why } from './pages/why';
import { Loading } from './parts';
import { Link, Place, usePlace } from './router';
import './style.css';

const pages: [string, string][] = [
  ['/', 'Overview'],
  ['/graph', 'Graph'],
  ['/objects', 'Objects'],
  ['/why', 'Why is it not live?'],
  ['/gates', 'Gates'],
  ['/changes', 'Changes'],
  ['/images', 'Images'],
];

const live = new Live();

function App() {
  return (
    <LiveContext.Provider value={live}>
      <Frame />
    </LiveContext.Provider>
  );
}

function Frame() {
  const place = usePlace();
  const { data, error, reload } = useData<Me>('me');
  const [connected, setConnected] = useState(true);
  useEffect(
    () =>
      live.onState((now) => {
        setConnected(now);
        reload(); // the session may have ended
      }),
    [],
  );
  const loggedOut = error instanceof Failure && error.status === 401;
  const me = loggedOut ? undefined : data;
  return (
    <>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <header class="top">
        <nav aria-label="Pages">
          <strong class="brand">Sluice</strong>
          {pages.map(([to, name]) => (
            <Link to={to} aria-current={place.path === to ? 'page' : undefined}>
              {name}
            </Link>
          ))}
        </nav>
        {me && <User me={me} />}
      </header>
      <main id="main" tabIndex={-1}>
        {!connected && me && (
          <p role="status" class="alert">
            Connecting to the server again. What is shown may be outdated.
          </p>
        )}
        {me ? (
          <>
            <Notices me={me} />
            <Content place={place} me={me} />
          </>
        ) : loggedOut ? (
          <Login error={error} />
        ) : (
          <Loading error={error} />
        )}
      </main>
      <footer class="quiet">Sluice {me?.version}</footer>
    </>
  );
}

// User shows who is logged in.
function User({ me }: { me: Me }) {
  const [error, setError] = useState<Error>();
  const leave = async () => {
    try {
      await logOut();
      location.assign('/');
    } catch (e) {
      setError(e as Error);
    }
  };
  return (
    <span class="user quiet">
      <span title={me.user}>{me.user}</span>
      {me.logout && <button onClick={() => void leave()}>Log out</button>}
      {error && <span role="alert">{error.message}</span>}
    </span>
  );
}

// Notices says which kinds cannot be shown, and why.
function Notices({ me }: { me: Me }) {
  const problems = Object.entries(me.problems);
  const [kind, text] = problems[0] ?? [];
  return (
    <>
      {(me.loading?.length ?? 0) > 0 && <p role="status">Loading {me.loading?.join(', ')}…</p>}
      {problems.length === 1 && (
        <p role="alert" class="alert">
          {kind}: {text}
        </p>
      )}
      {problems.length > 1 && (
        <div role="alert" class="alert">
          {problems.length} kinds cannot be shown, such as {kind}: {text}
          <details>
            <summary>All {problems.length} kinds</summary>
            <ul>
              {problems.map(([kind, text]) => (
                <li key={kind}>
                  {kind}: {text}
                </li>
              ))}
            </ul>
          </details>
        </div>
      )}
    </>
  );
}

function Content({ place, me }: { place: Place; me: Me }) {
  if (place.path.startsWith('/object/')) {
    const id = place.path.slice('/object/'.length).split('/').map(decodeURIComponent).join('/');
    return <ObjectPage key={id} id={id} />;
  }
  switch (place.path) {
    case '/':
      return <Overview />;
    case '/graph':
      return <Graph place={place} />;
    case '/objects':
      return <Objects place={place} me={me} />;
    case '/why':
      return <Why place={place} />;
    case '/gates':
      return <Gates place={place} />;
    case '/changes':
      return <Changes place={place} />;
    case '/images':
      return <Images place={place} />;
  }
  return (
    <>
      <h1>Not found</h1>
      <p>
        There is no such page. <Link to="/">Go to the overview</Link>.
      </p>
    </>
  );
}

const root = document.getElementById('app');
if (root) {
  render(<App />, root);
}
