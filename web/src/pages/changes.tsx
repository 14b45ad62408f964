import { GitCompareArrows } from 'lucide-preact';
import { useState } from 'preact/hooks';
import { ChangePage, ChangeSet, get, Item } from '../api';
import { useData, useTitle } from '../hooks';
import { Icon } from '../icons';
import { Ago, Author, Dot, Heading, Loading, ObjectName, objectPath, plural, Problem, Revision } from '../parts';
import { Link, Place, setQuery } from '../router';
import { environments } from './environments';
import { stateOf } from './overview';
import { Risk } from './pending';

const shownEnvironments = 8;

// Changes lists what waits and what was changed, by revision.
export function Changes({ place }: { place: Place }) {
  useTitle('Changes');
  const query = place.query.toString();
  const { data, error } = useData<ChangePage>('changes?' + query);
  return (
    <>
      <Heading title="Changes" sub="by revision: what waits, and what applied it" />
      <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
        <label>
          <span class="visually-hidden">Search</span>
          <input
            class="wide"
            type="search"
            maxLength={500}
            value={place.query.get('q') ?? ''}
            onInput={(e) => setQuery(place, { q: e.currentTarget.value })}
            placeholder="commit, image that it touches, name, author"
          />
        </label>
      </form>
      <Problem error={error} />
      {data ? <List key={query} first={data} query={place.query} /> : <Loading error={error} />}
    </>
  );
}

function List({ first, query }: { first: ChangePage; query: URLSearchParams }) {
  const [more, setMore] = useState<ChangePage[]>([]);
  const [error, setError] = useState<Error>();
  const pages = [first, ...more];
  const next = pages[pages.length - 1]?.next;
  // A change can move to an earlier page while later ones are shown: it is listed once.
  const keys = new Set<string>();
  const changes = pages.flatMap((p) => p.changes).filter((c) => !keys.has(c.key) && keys.add(c.key));
  const load = async () => {
    const q = new URLSearchParams(query);
    q.set('after', next ?? '');
    try {
      setMore([...more, await get<ChangePage>('changes?' + q.toString())]);
      setError(undefined);
    } catch (e) {
      setError(e as Error);
    }
  };
  return (
    <>
      <p class="quiet" role="status">
        {plural(first.total, 'change')}
      </p>
      {changes.map((c) => (
        <Change key={c.key} of={c} />
      ))}
      <Problem error={error} />
      {next && <button onClick={() => void load()}>Show more</button>}
    </>
  );
}

function Change({ of: c }: { of: ChangeSet }) {
  return (
    <section class="card">
      <header>
        <span class={`tile-icon ${stateOf(c)}`}>
          <Icon of={GitCompareArrows} size={14} />
        </span>
        <h2>{c.subject || 'Revision'}</h2>
        <Revision of={c.revision} />
        <span class="quiet">
          <Author of={c.author} /> <Ago at={c.at} />
        </span>
        <span class="end">
          <Link to={'/why?q=' + encodeURIComponent(c.revision)}>why is it not live?</Link>
        </span>
      </header>
      <Environments of={c} />
      <div class="grid three pad">
        <Items title="Waits" items={c.pending} count={c.pendingCount} pending />
        <Items title="Failed" items={c.failed} count={c.failedCount} />
        <Items title="Fetched by" items={c.sources} count={c.sourceCount} />
        <Items title="Applied by" items={c.live} count={c.liveCount} />
      </div>
    </section>
  );
}

// Environments shows how far the revision is in each: a column each, with the worst state and the time of the last change.
function Environments({ of: c }: { of: ChangeSet }) {
  const all = environments(c);
  if (all.length < 2) {
    return null;
  }
  return (
    <ul class="stages">
      {all.slice(0, shownEnvironments).map((e) => (
        <li key={e.name}>
          <div class="line">
            <Dot state={e.state} /> <strong class="long">{e.name}</strong>
          </div>
          <span class="quiet">
            {e.words} <Ago at={e.at} />
          </span>
        </li>
      ))}
      {all.length > shownEnvironments && <li class="quiet">and {all.length - shownEnvironments} more</li>}
    </ul>
  );
}

function Items({ title, items, count, pending }: { title: string; items?: Item[]; count: number; pending?: boolean }) {
  if (!items?.length) {
    return null;
  }
  return (
    <details open={items.length <= 5}>
      <summary>
        {title}: {count}
      </summary>
      <ul class="plain">
        {items.map((i) => (
          <li class="line">
            <Dot state={i.state} /> <ObjectName id={i.id} /> {pending && <Risk level={i.risk} />}{' '}
            {i.objects !== undefined && <Link to={objectPath(i.id) + '?tab=Diff'}>diff</Link>} {pending && i.image && <span class="quiet">{i.image}</span>}
          </li>
        ))}
      </ul>
      {count > items.length && <p class="quiet">{count - items.length} more are not listed: search for them in Objects.</p>}
    </details>
  );
}
