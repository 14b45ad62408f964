import { useState } from 'preact/hooks';
import { get, Graph as Data, path, Tree } from '../api';
import { useData, useTitle } from '../hooks';
import { Badge, Loading, ObjectLink, Problem } from '../parts';
import { Place, setQuery } from '../router';
import { fold } from './fold';
import { Picture } from './picture';

const shownAsGraph = 300; // nodes; more are readable as a table only, until a filter or a root is chosen

// useTrees reads what objects made, on request.
function useTrees() {
  const [trees, setTrees] = useState<Map<string, Tree>>(new Map());
  const [error, setError] = useState<Error>();
  const toggle = async (id: string) => {
    const next = new Map(trees);
    if (!next.delete(id)) {
      try {
        next.set(id, await get<Tree>(`objects/${path(id)}/tree`));
      } catch (e) {
        setError(e as Error);
        return;
      }
    }
    setError(undefined);
    setTrees(next);
  };
  return { trees, error, toggle: (id: string) => void toggle(id) };
}

// Graph shows how objects are connected, as a picture and as a table.
export function Graph({ place }: { place: Place }) {
  useTitle('Graph');
  const { data, error } = useData<Data>('graph?' + place.query.toString());
  const table = place.query.get('as') === 'table';
  const root = place.query.get('root');
  const [folded, setFolded] = useState<Set<string>>(new Set());
  const { trees, toggle: toggleObjects, error: failed } = useTrees();
  const toggle = (id: string) => {
    const next = new Set(folded);
    if (!next.delete(id)) {
      next.add(id);
    }
    setFolded(next);
  };
  return (
    <>
      <h1>Graph {root && <small>around {root}</small>}</h1>
      <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
        <label>
          Filter{' '}
          <input type="search" value={place.query.get('q') ?? ''} onInput={(e) => setQuery(place, { q: e.currentTarget.value })} />
        </label>
        {root && (
          <button type="button" onClick={() => setQuery(place, { root: '' })}>
            Show everything
          </button>
        )}
        {folded.size > 0 && (
          <button type="button" onClick={() => setFolded(new Set())}>
            Unfold all
          </button>
        )}
        <button type="button" aria-pressed={table} onClick={() => setQuery(place, { as: table ? '' : 'table' })}>
          {table ? 'Show as picture' : 'Show as table'}
        </button>
      </form>
      <Problem error={error ?? failed} />
      {!data && <Loading error={error} />}
      {data && data.omitted > 0 && <p class="alert">{data.omitted} objects are not shown: filter by a word.</p>}
      {data && !table && data.nodes.length > shownAsGraph && (
        <p class="quiet">This is a picture of {data.nodes.length} objects: filter by a word to see less.</p>
      )}
      {data && (table ? <Relations data={data} /> : <Picture of={fold(data, trees, folded)} trees={trees} toggle={toggle} toggleObjects={toggleObjects} folded={folded} />)}
    </>
  );
}

// Relations is the graph for keyboards and screen readers.
function Relations({ data }: { data: Data }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of relations">
      <table>
        <thead>
          <tr>
            <th>State</th>
            <th>Object</th>
            <th>Comes from</th>
          </tr>
        </thead>
        <tbody>
          {data.nodes.map((n) => (
            <tr key={n.id}>
              <td>
                <Badge state={n.state} />
              </td>
              <td>
                <ObjectLink id={n.id} />
              </td>
              <td>
                {data.edges
                  .filter((e) => e.to === n.id)
                  .map((e) => (
                    <div>
                      {e.relation}: <ObjectLink id={e.from} />
                    </div>
                  ))}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
