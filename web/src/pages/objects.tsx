import { useState } from 'preact/hooks';
import { get, Me, Page, states } from '../api';
import { useData, useTitle } from '../hooks';
import { Ago, Badge, Loading, Problem, Revision, objectPath } from '../parts';
import { Link, Place, setQuery } from '../router';

// Objects is the table of all objects, with filters in the address.
export function Objects({ place, me }: { place: Place; me: Me }) {
  useTitle('Objects');
  const query = new URLSearchParams(place.query);
  const { data, error } = useData<Page>('items?' + query.toString());
  return (
    <>
      <h1>Objects</h1>
      <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
        <label>
          Search{' '}
          <input
            type="search"
            value={query.get('q') ?? ''}
            onInput={(e) => setQuery(place, { q: e.currentTarget.value })}
            placeholder="name, revision, image, message"
          />
        </label>
        <Choice place={place} name="kind" options={me.kinds} />
        <Choice place={place} name="state" options={states} />
        <label>
          Namespace{' '}
          <input
            value={query.get('namespace') ?? ''}
            onChange={(e) => setQuery(place, { namespace: e.currentTarget.value })}
          />
        </label>
      </form>
      <Problem error={error} />
      {data ? <Table key={query.toString()} first={data} query={query} /> : <Loading error={error} />}
    </>
  );
}

function Choice({ place, name, options }: { place: Place; name: string; options: string[] }) {
  const title = name[0]?.toUpperCase() + name.slice(1);
  return (
    <label>
      {title}{' '}
      <select value={place.query.get(name) ?? ''} onChange={(e) => setQuery(place, { [name]: e.currentTarget.value })}>
        <option value="">all</option>
        {options.map((o) => (
          <option value={o}>{o}</option>
        ))}
      </select>
    </label>
  );
}

function Table({ first, query }: { first: Page; query: URLSearchParams }) {
  const [more, setMore] = useState<Page[]>([]);
  const [error, setError] = useState<Error>();
  const pages = [first, ...more];
  const items = pages.flatMap((p) => p.items);
  const next = pages[pages.length - 1]?.next;
  const load = async () => {
    const q = new URLSearchParams(query);
    q.set('after', next ?? '');
    try {
      const page = await get<Page>('items?' + q.toString());
      setMore([...more, page]);
    } catch (e) {
      setError(e as Error);
    }
  };
  return (
    <>
      <p class="quiet" role="status">
        {first.total} {first.total === 1 ? 'object' : 'objects'}
      </p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of objects">
        <table>
          <thead>
            <tr>
              <th>State</th>
              <th>Kind</th>
              <th>Namespace</th>
              <th>Name</th>
              <th>Revision</th>
              <th>Since</th>
              <th>Message</th>
            </tr>
          </thead>
          <tbody>
            {items.map((i) => (
              <tr key={i.id}>
                <td>
                  <Badge state={i.state} />
                </td>
                <td>{i.kind}</td>
                <td>{i.namespace}</td>
                <td>
                  <Link to={objectPath(i.id)}>{i.name}</Link>
                </td>
                <td>
                  <Revision of={i.revision} />
                </td>
                <td>
                  <Ago at={i.since} />
                </td>
                <td class="message">{i.message}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Problem error={error} />
      {next && <button onClick={() => void load()}>Show more</button>}
    </>
  );
}
