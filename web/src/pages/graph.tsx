import { useMemo, useState } from 'preact/hooks';
import { Change, get, Graph as Data, Item, path, Tree } from '../api';
import { useData, useTitle } from '../hooks';
import { Heading, Loading, ObjectLink, ObjectName, Pill, Problem } from '../parts';
import { Place, setQuery } from '../router';
import { fold } from './fold';
import { Picture } from './picture';

const shownAsGraph = 300; // nodes; more are readable as a table only, until a filter or a root is chosen

// useGraph reads the graph. Changes that move no node are taken from the stream; others read the graph again.
function useGraph(place: Place) {
  const query = new URLSearchParams(place.query);
  query.delete('as'); // how it is shown
  return useData<Data>('graph?' + query.toString(), undefined, (data, changes) => update(data, changes, query));
}

const relations = (i: Item) => JSON.stringify([i.sources, i.dependsOn, i.gates, i.appliedBy, i.watches, i.selects, i.provider]);

// update returns the graph after changes, or undefined if it must be read again: if nodes or relations come or go.
function update(data: Data, changes: Change[], query: URLSearchParams): Data | undefined {
  const filtered = ['q', 'state'].some((p) => query.has(p)); // what matches can change with a state or message
  const at = new Map(data.nodes.map((n, i) => [n.id, i]));
  const nodes = [...data.nodes];
  for (const { id, item } of changes) {
    const i = at.get(id);
    const before = i === undefined ? undefined : nodes[i];
    if (i === undefined || !before) {
      if (item && (filtered || comes(data, at, item, query))) {
        return undefined;
      }
    } else if (!item || filtered || relations(before) !== relations(item)) {
      return undefined;
    } else {
      nodes[i] = item;
    }
  }
  return { ...data, nodes };
}

// comes reports whether an object that the graph lacks may belong to it now.
function comes(data: Data, at: Map<string, number>, item: Item, query: URLSearchParams): boolean {
  const kinds = query.getAll('kind');
  const namespace = query.get('namespace');
  if ((kinds.length > 0 && !kinds.includes(item.kind)) || (namespace && namespace !== item.namespace)) {
    return false;
  }
  if (query.get('root')) {
    const others = [item.sources, item.dependsOn, item.gates, [item.appliedBy ?? '']].flatMap((ids) => ids ?? []);
    return (data.missing ?? []).includes(item.id) || item.id === query.get('root') || others.some((id) => at.has(id));
  }
  return data.omitted === 0;
}

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
  const { data, error } = useGraph(place);
  const table = place.query.get('as') === 'table';
  const root = place.query.get('root');
  const [folded, setFolded] = useState<Set<string>>(new Set());
  const { trees, toggle: toggleObjects, error: failed } = useTrees();
  const content = useMemo(() => data && fold(data, trees, folded), [data, trees, folded]);
  const toggle = (id: string) => {
    const next = new Set(folded);
    if (!next.delete(id)) {
      next.add(id);
    }
    setFolded(next);
  };
  return (
    <>
      <Heading title="Graph" sub={root ? `around ${root}` : 'sources, what they build, and the gates between'} />
      <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
        <label>
          <span class="visually-hidden">Filter</span>
          <input
            placeholder="filter by a word"
            type="search" value={place.query.get('q') ?? ''} onInput={(e) => setQuery(place, { q: e.currentTarget.value })} />
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
      {data && content && (
        <section class="card">
          {table ? <Relations data={data} /> : <Picture of={content} trees={trees} toggle={toggle} toggleObjects={toggleObjects} folded={folded} />}
        </section>
      )}
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
                <Pill state={n.state} />
              </td>
              <td>
                <ObjectName id={n.id} />
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
