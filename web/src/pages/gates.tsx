import { GateEntry } from '../api';
import { useData, useTitle } from '../hooks';
import { Loading, ObjectLink, Problem } from '../parts';
import { Place, setQuery } from '../router';
import { GateCalendar } from './calendar';
import { GateBody, GateState } from './gate';

// Gates is the inbox of what waits for whom, or the calendar of all gates.
export function Gates({ place }: { place: Place }) {
  useTitle('Gates');
  const calendar = place.query.get('as') === 'calendar';
  return (
    <>
      <h1>Gates</h1>
      <div class="buttons">
        <button aria-pressed={calendar} onClick={() => setQuery(place, { as: calendar ? '' : 'calendar' })}>
          {calendar ? 'Show what waits' : 'Show the calendar'}
        </button>
      </div>
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
      {data.gates.length === 0 && <p class="quiet">There are no gates.</p>}
      {data.gates.map((g) => (
        <Entry key={g.item.id} entry={g} onDone={reload} />
      ))}
    </>
  );
}

function Entry({ entry, onDone }: { entry: GateEntry; onDone: () => void }) {
  return (
    <section class={entry.item.gate?.count ? 'gate waits' : 'gate'}>
      <header class="section">
        <h2>
          <ObjectLink id={entry.item.id} />
        </h2>
        <GateState item={entry.item} />
      </header>
      <GateBody entry={entry} onDone={onDone} />
    </section>
  );
}
