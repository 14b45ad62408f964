import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { act, get, Group, Groups, Item, Me, Page, Past, State, states } from '../api';
import { useData, useTitle } from '../hooks';
import { KindIcon } from '../icons';
import { Ago, Brief, Dialog, Dot, Empty, Heading, Loading, objectPath, Pill, plural, Problem, Revision } from '../parts';
import { Link, Place, setQuery } from '../router';
import { useWindowRows } from '../virtual';

// Applications is the table of objects, with filters in the address: those of some kinds, or all.
export function Applications({ place, me, kinds }: { place: Place; me: Me; kinds?: string[] }) {
  const title = kinds ? 'Applications' : 'Objects';
  useTitle(title);
  const query = new URLSearchParams(place.query);
  if (kinds && !query.has('kind')) {
    kinds.forEach((k) => query.append('kind', k));
  }
  const isGrouped = query.has('by');
  const { data, error } = useData<Page>(`items?${isGrouped ? 'limit=1&' : ''}${query.toString()}`, isGrouped ? () => false : undefined);
  return (
    <>
      <Heading title={title}>
        <span class="end switch" role="group" aria-label="Kinds">
          <Link to="/applications" class="choice" aria-current={kinds ? 'page' : undefined}>
            Applications
          </Link>
          <Link to="/objects" class="choice" aria-current={kinds ? undefined : 'page'}>
            All objects
          </Link>
        </span>
      </Heading>
      <Filters place={place} kinds={kinds ?? me.kinds} />
      <Problem error={error} />
      {query.get('by') ? (
        <Grouped query={query} />
      ) : data ? (
        <Pages key={query.toString()} first={data} query={query} kinds={!!kinds} />
      ) : (
        <Loading error={error} />
      )}
    </>
  );
}

function Filters({ place, kinds }: { place: Place; kinds: string[] }) {
  const state = place.query.get('state') ?? '';
  return (
    <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
      <label>
        <span class="visually-hidden">Search</span>
        <input
          type="search"
          value={place.query.get('q') ?? ''}
          onInput={(e) => setQuery(place, { q: e.currentTarget.value })}
          placeholder="name, revision, image, message"
        />
      </label>
      <div class="chips" role="group" aria-label="State">
        {['', ...states].map((s) => (
          <button type="button" aria-pressed={state === s} onClick={() => setQuery(place, { state: s })}>
            {s || 'all'}
          </button>
        ))}
      </div>
      <label>
        Kind
        <select value={place.query.get('kind') ?? ''} onChange={(e) => setQuery(place, { kind: e.currentTarget.value })}>
          <option value="">all</option>
          {kinds.map((o) => (
            <option value={o}>{o}</option>
          ))}
        </select>
      </label>
      <label>
        Namespace
        <input class="narrow" value={place.query.get('namespace') ?? ''} onChange={(e) => setQuery(place, { namespace: e.currentTarget.value })} />
      </label>
      <label>
        Sort by
        <select value={place.query.get('order') ?? ''} onChange={(e) => setQuery(place, { order: e.currentTarget.value })}>
          <option value="">name</option>
          <option value="state">state, worst first</option>
          <option value="changed">last change</option>
        </select>
      </label>
      <GroupBy place={place} kinds={kinds} />
    </form>
  );
}

// GroupBy chooses what the objects are grouped by: a namespace, a source, or a label that one of them has.
function GroupBy({ place, kinds }: { place: Place; kinds: string[] }) {
  const q = new URLSearchParams(kinds.map((k) => ['kind', k]));
  const { data } = useData<Groups>('groups?' + q.toString(), () => false);
  const by = place.query.get('by') ?? '';
  const labels = new Set(data?.labels);
  if (by && by !== 'namespace' && by !== 'source') {
    labels.add(by);
  }
  return (
    <label>
      Group by
      <select value={by} onChange={(e) => setQuery(place, { by: e.currentTarget.value })}>
        <option value="">nothing</option>
        <option value="namespace">namespace</option>
        <option value="source">source</option>
        {[...labels].map((l) => (
          <option value={l}>label {l}</option>
        ))}
      </select>
    </label>
  );
}

// Grouped shows the objects by namespace, source or label. The objects of a group are read when it is opened.
function Grouped({ query }: { query: URLSearchParams }) {
  const { data, error } = useData<Groups>('groups?' + query.toString());
  if (!data) {
    return <Loading error={error} />;
  }
  return (
    <>
      <p class="quiet" role="status">
        {plural(data.groups.length, 'group')}
        {data.omitted > 0 && `, ${data.omitted} more are not shown`}
      </p>
      {data.groups.length === 0 && <Empty>Nothing matches. Remove a filter, or look at all objects.</Empty>}
      {data.groups.map((g, i) => (
        <OneGroup key={`${query.get('by')} ${g.name}`} group={g} query={query} open={i === 0} />
      ))}
    </>
  );
}

function OneGroup({ group, query, open: first }: { group: Group; query: URLSearchParams; open: boolean }) {
  const [open, setOpen] = useState(first);
  const by = query.get('by') ?? '';
  const total = Object.values(group.counts).reduce((a, b) => a + b, 0);
  return (
    <details class="card group" open={open} onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>
        <strong>{group.name || `without ${by}`}</strong> <span class="quiet">{plural(total, 'object')}</span>
        <span class="end line">
          {states.filter((s) => group.counts[s]).map((s) => (
            <Pill state={s}>{`${group.counts[s]} ${s}`}</Pill>
          ))}
        </span>
      </summary>
      {open && <InGroup query={query} group={group.name} />}
    </details>
  );
}

function InGroup({ query, group }: { query: URLSearchParams; group: string }) {
  const of = new URLSearchParams(query);
  of.set('group', group);
  const { data, error } = useData<Page>('items?' + of.toString());
  return data ? <Pages key={of.toString()} first={data} query={of} kinds={false} /> : <Loading error={error} />;
}

function Pages({ first, query, kinds }: { first: Page; query: URLSearchParams; kinds: boolean }) {
  const [more, setMore] = useState<Page[]>([]);
  const [error, setError] = useState<Error>();
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const pages = [first, ...more];
  const items = pages.flatMap((p) => p.items);
  const next = pages[pages.length - 1]?.next;
  const load = async () => {
    const q = new URLSearchParams(query);
    q.set('after', next ?? '');
    q.set('limit', '500');
    try {
      const page = await get<Page>('items?' + q.toString());
      setMore([...more, page]);
      setError(undefined);
    } catch (e) {
      setError(e as Error);
    }
  };
  const choose = (id: string) => {
    const now = new Set(chosen);
    if (!now.delete(id)) {
      now.add(id);
    }
    setChosen(now);
  };
  return (
    <>
      <div class="line">
        {!query.has('group') && (
          <p class="quiet" role="status">
            {plural(first.total, kinds ? 'application' : 'object')}
          </p>
        )}
        {chosen.size > 0 && <ForAll ids={[...chosen]} onDone={() => setChosen(new Set())} />}
      </div>
      <section class="card">
        {items.length === 0 ? <Empty>Nothing matches. Remove a filter, or look at all objects.</Empty> : <Table items={items} chosen={chosen} choose={choose} onEnd={more.length ? () => next && void load() : undefined} />}
      </section>
      <Problem error={error} />
      {next && <button onClick={() => void load()}>Show more</button>}
    </>
  );
}

// ForAll reconciles, suspends or resumes all chosen objects, and says what came of it.
function ForAll({ ids, onDone }: { ids: string[]; onDone: () => void }) {
  const [said, setSaid] = useState('');
  const [asks, setAsks] = useState(false);
  const suspend = (e: SubmitEvent) => {
    e.preventDefault();
    setAsks(false);
    void run('suspend', String(new FormData(e.currentTarget as HTMLFormElement).get('reason')));
  };
  const run = async (action: string, reason?: string) => {
    const results = await Promise.allSettled(ids.map((id) => act(id, action, { reason })));
    const failed = results.find((r) => r.status === 'rejected');
    if (failed) {
      setSaid(String((failed as PromiseRejectedResult).reason.message));
    } else {
      onDone();
    }
  };
  return (
    <>
      <strong>{ids.length} chosen</strong>
      <button onClick={() => void run('reconcile')}>Reconcile</button>
      <button onClick={() => setAsks(true)}>Suspend</button>
      <button onClick={() => void run('resume')}>Resume</button>
      {asks && (
        <Dialog title={`Suspend ${plural(ids.length, 'object')}`} onClose={() => setAsks(false)}>
          <form class="ask" onSubmit={suspend}>
            <label>
              Reason
              <input name="reason" required maxLength={500} autoFocus />
            </label>
            <div class="buttons">
              <button type="submit" class="primary">
                Suspend
              </button>
              <button type="button" onClick={() => setAsks(false)}>
                Cancel
              </button>
            </div>
          </form>
        </Dialog>
      )}
      {said && <span role="alert">{said}</span>}
    </>
  );
}

const rowHeight = 39; // pixels, before a row is measured
const allShown = 200; // rows; of longer lists, only those in sight exist

// Table lists objects, one a row. On a phone each is a card. onEnd is called when the last rows come into sight.
export function Table({ items, chosen, choose, onEnd }: { items: Item[]; chosen?: Set<string>; choose?: (id: string) => void; onEnd?: () => void }) {
  const isLong = items.length > allShown;
  const body = useRef<HTMLTableSectionElement>(null);
  const [above, setAbove] = useState(0);
  useLayoutEffect(() => setAbove((body.current?.getBoundingClientRect().top ?? 0) + window.scrollY), [isLong]);
  const rows = useWindowRows(isLong ? items.length : 0, rowHeight, above);
  const sight = rows.getVirtualItems();
  const first = sight[0];
  const last = sight[sight.length - 1];
  const isAtEnd = last?.index === items.length - 1;
  useEffect(() => {
    if (isAtEnd) {
      onEnd?.();
    }
  }, [isAtEnd, items.length]);
  const shown = isLong ? sight.map((v) => v.index) : items.map((_, i) => i);
  const gap = (height: number) => isLong && height > 0 && <tr aria-hidden="true" class="gap" style={{ height }} />;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of objects">
      <table class="cards" aria-rowcount={isLong ? items.length + 1 : undefined}>
        <thead>
          <tr>
            {choose && (
              <th>
                <span class="visually-hidden">Choose</span>
              </th>
            )}
            <th>Name</th>
            <th>Namespace</th>
            <th>Kind</th>
            <th>Revision</th>
            <th>Last changes</th>
            <th>State</th>
            <th>Since</th>
          </tr>
        </thead>
        <tbody ref={body}>
          {gap((first?.start ?? above) - above)}
          {shown.map((n) => {
            const i = items[n];
            return i && <Row key={i.id} item={i} chosen={chosen?.has(i.id)} choose={choose} index={isLong ? n : undefined} measure={isLong ? rows.measureElement : undefined} />;
          })}
          {gap(rows.getTotalSize() - ((last?.end ?? above) - above))}
        </tbody>
      </table>
    </div>
  );
}

interface RowProps {
  item: Item;
  chosen?: boolean;
  choose?: (id: string) => void;
  index?: number; // in a long list
  measure?: (row: HTMLElement | null) => void;
}

function Row({ item: i, chosen, choose, index, measure }: RowProps) {
  return (
    <tr ref={measure} data-index={index} aria-rowindex={index === undefined ? undefined : index + 2}>
      {choose && (
        <td>
          <input type="checkbox" aria-label={`Choose ${i.id}`} checked={chosen} onChange={() => choose(i.id)} />
        </td>
      )}
      <td class="tight">
        <span class="line">
          <Dot state={i.state} />
          <Link to={objectPath(i.id)} class="name" data-row>
            {i.name}
          </Link>
        </span>
      </td>
      <td class="tight">{i.namespace}</td>
      <td class="tight">
        <span class="line">
          <KindIcon kind={i.kind} /> {i.kind}
        </span>
      </td>
      <td class="tight">
        <Revision of={i.revision} />
      </td>
      <td class="tight">
        <Strip past={i.past} />
      </td>
      <td class="message">
        <span class="long">
          {i.deleting ? `being deleted${i.finalizers?.length ? `, held by ${i.finalizers.join(', ')}` : ''}` : <Brief text={i.message} />}
        </span>
      </td>
      <td class="tight">
        <Ago at={i.since} />
      </td>
    </tr>
  );
}

// Strip shows the last changes of an object, the oldest first: a bar each, higher if it failed.
function Strip({ past }: { past?: Past[] }) {
  if (!past?.length) {
    return null;
  }
  const count = (s: State) => past.filter((p) => p.state === s).length;
  const words = states.filter(count).map((s) => `${count(s)} ${s}`);
  return (
    <span class="strip" role="img" aria-label={`${plural(past.length, 'change')}: ${words.join(', ')}`}>
      {past.map((p) => (
        <i class={p.state} title={`${p.revision}: ${p.state}`} />
      ))}
    </span>
  );
}
