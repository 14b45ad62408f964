import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Failure, get, Live, Me, Overview as OverviewData } from './api';
import { base } from './base';
import { LiveContext, useData } from './hooks';
import { useKeys } from './keys';
import { Applications } from './pages/applications';
import { Changes } from './pages/changes';
import { Clusters } from './pages/clusters';
import { Explain } from './pages/explain';
import { Gates } from './pages/gates';
import { Graph } from './pages/graph';
import { Images } from './pages/images';
import { Login } from './pages/login';
import { Logs } from './pages/logs';
import { ObjectPage } from './pages/object';
import { Overview } from './pages/overview';
import { Review } from './pages/review';
import { Reviews } from './pages/reviews';
import { Why } from './pages/why';
import { Workloads } from './pages/workloads';
import { Palette } from './palette';
import { Loading, LogInElsewhere } from './parts';
import { Link, Place, usePlace } from './router';
import { Keys, more, pages, Shell, Side, Top } from './shell';
import './style.css';
import { applyTheme, chosenTheme } from './theme';

applyTheme(chosenTheme());

const isFleet = base.isHub && !base.cluster; // the pages of a hub about all clusters
const live = isFleet ? null : new Live();

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
  const [asks, setAsks] = useState<'find' | 'keys'>();
  const [said, setSaid] = useState('');
  useEffect(
    () =>
      live?.onState((now) => {
        setConnected(now);
        reload(); // the session may have ended
      }),
    [],
  );
  useKeys(() => setAsks('find'), () => setAsks('keys'));
  const loggedOut = error instanceof Failure && error.status === 401;
  const ended = loggedOut && data !== undefined; // while the page is shown: what was typed must not be lost
  useEffect(() => {
    addEventListener('focus', reload); // another tab may have logged in again, or out
    return () => removeEventListener('focus', reload);
  }, []);
  if (loggedOut && !ended) {
    return (
      <main id="main">
        <Login error={error} />
      </main>
    );
  }
  return (
    <>
      {ended && (
        <p role="alert" class="alert">
          Your session has ended. <LogInElsewhere /> What you have typed stays here.
        </p>
      )}
      <Known place={place} me={data} error={error} connected={connected} onFind={() => setAsks('find')} />
      {asks === 'find' && <Palette onClose={() => setAsks(undefined)} onSaid={setSaid} />}
      {asks === 'keys' && <Keys onClose={() => setAsks(undefined)} />}
      <p role="status" class={said ? 'toast' : 'visually-hidden'} onClick={() => setSaid('')}>
        {said}
      </p>
    </>
  );
}

// Known is what a person sees who is logged in.
function Known({ place, me, error, connected, onFind }: { place: Place; me?: Me; error?: Error; connected: boolean; onFind: () => void }) {
  const overview = useData<OverviewData>('overview');
  return (
    <Shell
      side={<Side place={place} me={me} overview={overview.data} />}
      top={<Top place={place} crumbs={crumbs(place)} connected={connected} onFind={onFind} />}
    >
      {!connected && me && (
        <p role="status" class="alert waiting">
          Connecting to the server again. What is shown may be outdated.
        </p>
      )}
      {me ? (
        <>
          <Dead />
          <Notices me={me} />
          {place.path === '/' ? <Overview loaded={overview} /> : <Content place={place} me={me} />}
        </>
      ) : (
        <Loading error={error} />
      )}
    </Shell>
  );
}

// crumbs returns the path of a page: names, with addresses but for the last.
function crumbs(place: Place): [string, string?][] {
  if (place.path.startsWith('/object/')) {
    const [, , kind = '', namespace = '', ...name] = place.path.split('/').map(decodeURIComponent);
    return [
      ['Applications', '/applications'],
      [namespace, '/objects?namespace=' + encodeURIComponent(namespace)],
      [kind, `/objects?kind=${encodeURIComponent(kind)}`],
      [name.join('/')],
    ];
  }
  if (place.path.startsWith('/reviews/')) {
    return [['Reviews', '/reviews'], [place.path.slice('/reviews/'.length).replace('/', ' #')]];
  }
  if (place.path === '/logs' && place.query.get('name')) {
    const q = (key: string) => place.query.get(key) ?? '';
    return [['Workloads', '/workloads'], [q('namespace'), '/workloads?namespace=' + encodeURIComponent(q('namespace'))], [q('name')], ['Logs']];
  }
  return [[[...pages, ...more].find((p) => p.to === place.path)?.name ?? 'Sluice']];
}

const livenessInterval = 20_000; // milliseconds

// Dead says on every page that the controllers do not work: what is shown is old then.
function Dead() {
  const [problems, setProblems] = useState<string[]>([]);
  useEffect(() => {
    const read = () => {
      get<{ problems: string[] }>('controllers').then(
        (c) => setProblems(c.problems),
        () => {}, // the pages say what cannot be read
      );
    };
    read();
    const timer = window.setInterval(read, livenessInterval);
    return () => window.clearInterval(timer);
  }, []);
  return (
    <>
      {problems.map((p) => (
        <p role="alert" class="alert">
          {p[0]?.toUpperCase() + p.slice(1)}.
        </p>
      ))}
    </>
  );
}

// Notices says which kinds cannot be shown, and why.
function Notices({ me }: { me: Me }) {
  const problems = Object.entries(me.problems);
  const [kind, text] = problems[0] ?? [];
  return (
    <>
      {(me.loading?.length ?? 0) > 0 && <p role="status" class="quiet">Loading {me.loading?.join(', ')}…</p>}
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
    return <ObjectPage key={id} id={id} place={place} />;
  }
  if (place.path.startsWith('/reviews/')) {
    const [repository = '', number = ''] = place.path.slice('/reviews/'.length).split('/').map(decodeURIComponent);
    return <Review key={place.path} repository={repository} number={number} />;
  }
  switch (place.path) {
    case '/reviews':
      return <Reviews place={place} />;
    case '/graph':
      return <Graph place={place} />;
    case '/applications':
      return <Applications key="applications" place={place} me={me} kinds={['Kustomization', 'HelmRelease']} />;
    case '/objects':
      return <Applications key="objects" place={place} me={me} />;
    case '/why':
      return <Why place={place} />;
    case '/gates':
      return <Gates place={place} />;
    case '/changes':
      return <Changes place={place} />;
    case '/images':
      return <Images place={place} />;
    case '/workloads':
      return <Workloads place={place} />;
    case '/logs':
      return <Logs place={place} />;
    case '/clusters':
      return <Clusters />;
    case '/explain':
      return <Explain place={place} />;
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
if (root && isFleet) {
  void import('./fleet/app').then(({ Fleet }) => render(<Fleet />, root));
} else if (root) {
  render(<App />, root);
}
