import { GateEntry } from '../api';
import { useData, useTitle } from '../hooks';
import { KindIcon } from '../icons';
import { Empty, Heading, Loading, ObjectLink, Problem } from '../parts';
import { Place, setQuery } from '../router';
import { GateCalendar } from './calendar';
import { GateBody, GateState } from './gate';

// Gates is the inbox of what waits for whom, or the calendar of all gates.
export function Gates({ place }: { place: Place }) {
  useTitle('Gates');
  const calendar = place.query.get('as') === 'calendar';
  return (
    <>
      <Heading title="Gates" sub={calendar ? 'when they were open, and when they will be' : 'what waits, and for whom'}>
        <span class="end">
          <button aria-pressed={calendar} onClick={() => setQuery(place, { as: calendar ? '' : 'calendar' })}>
            {calendar ? 'Show what waits' : 'Show the calendar'}
          </button>
        </span>
      </Heading>
      {calendar ? <GateCalendar place={place} /> : <Inbox />}
    </>
  );
}

function Inbox() {
  const { data, error, reload } = useData<{ gates: GateEntry[] }>('gates');
  if (!data) {
    return <Loading error={error} />;
  }
  return (
    <>
      <Problem error={error} />
      {data.gates.length === 0 && (
        <section class="card">
          <Empty>
            There are no gates: every change is applied at once. <code>sluice create gate</code> creates one.
          </Empty>
        </section>
      )}
      {data.gates.map((g) => (
        <Entry key={g.item.id} entry={g} onDone={reload} />
      ))}
    </>
  );
}

function Entry({ entry, onDone }: { entry: GateEntry; onDone: () => void }) {
  return (
    <section class={entry.item.gate?.count ? 'gate waits' : 'gate'}>
      <header>
        <span class={entry.item.gate?.open ? 'tile-icon ready' : 'tile-icon waiting'}>
          <KindIcon kind="Gate" />
        </span>
        <h2>
          <ObjectLink id={entry.item.id} />
        </h2>
        <GateState item={entry.item} />
      </header>
      <div class="pad">
        <GateBody entry={entry} onDone={onDone} />
      </div>
    </section>
  );
}
