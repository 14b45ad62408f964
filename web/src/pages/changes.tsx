import { ChangeSet, Item } from '../api';
import { useData, useTitle } from '../hooks';
import { Ago, Badge, Loading, ObjectLink, Problem, Revision } from '../parts';
import { Link, Place, setQuery } from '../router';

// Changes lists what waits and what was changed, by revision.
export function Changes({ place }: { place: Place }) {
  useTitle('Changes');
  const { data, error } = useData<ChangeSet[]>('changes?' + place.query.toString());
  return (
    <>
      <h1>Changes</h1>
      <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
        <label>
          Search{' '}
          <input
            type="search"
            value={place.query.get('q') ?? ''}
            onInput={(e) => setQuery(place, { q: e.currentTarget.value })}
            placeholder="commit, image, name, author"
          />
        </label>
      </form>
      <Problem error={error} />
      {!data && <Loading error={error} />}
      {data?.length === 0 && <p class="quiet">No change matches.</p>}
      {data?.map((c) => (
        <section key={c.revision} class="card">
          <header class="section">
            <h2>
              <Revision of={c.revision} /> {c.subject}
            </h2>
            <span class="quiet">
              {c.author} <Ago at={c.at} />
            </span>
            <Link to={'/why?q=' + encodeURIComponent(c.revision)}>why is it not live?</Link>
          </header>
          <Items title="Waits" items={c.pending} />
          <Items title="Fetched by" items={c.sources} />
          <Items title="Applied by" items={c.live} />
        </section>
      ))}
    </>
  );
}

function Items({ title, items }: { title: string; items?: Item[] }) {
  if (!items?.length) {
    return null;
  }
  return (
    <details open={items.length <= 5}>
      <summary>
        {title}: {items.length}
      </summary>
      <ul class="plain">
        {items.map((i) => (
          <li class="line">
            <Badge state={i.state} /> <ObjectLink id={i.id} />
          </li>
        ))}
      </ul>
    </details>
  );
}
