import { GatesCalendar, Period } from '../api';
import { useData } from '../hooks';
import { Loading, ObjectLink, Problem } from '../parts';
import { Place, setQuery } from '../router';

const width = 1000; // units of the picture of a gate
const dayLength = 24 * 60 * 60 * 1000;

const spans: [string, string][] = [
  ['7', '1 week'],
  ['14', '2 weeks'],
  ['30', '30 days'],
];

// GateCalendar shows when gates were open, and when they will be if nothing but time changes.
export function GateCalendar({ place }: { place: Place }) {
  const days = place.query.get('days') ?? '14';
  const { data, error } = useData<GatesCalendar>(`calendar?days=${encodeURIComponent(days)}`, (c) => c.id.startsWith('Gate/'));
  return (
    <>
      <form class="filters" onSubmit={(e) => e.preventDefault()}>
        <label>
          Ahead{' '}
          <select value={days} onChange={(e) => setQuery(place, { days: e.currentTarget.value })}>
            {spans.map(([value, name]) => (
              <option value={value}>{name}</option>
            ))}
          </select>
        </label>
      </form>
      <p class="quiet">
        From a week ago to the time ahead. The future is that of the schedules, with the approvals and checks of now. Times are
        yours.
      </p>
      <Problem error={error} />
      {!data && <Loading error={error} />}
      {data?.gates.length === 0 && <p class="quiet">There are no gates.</p>}
      {data?.gates.map((g) => (
        <section key={g.gate} class="card">
          <header>
            <h2>
              <ObjectLink id={g.gate} />
            </h2>
          </header>
          <div class="pad">
          {g.error && <p class="alert">{g.error}</p>}
          <Bar calendar={data} periods={g.periods} />
          <details>
            <summary>{g.periods.length} periods</summary>
            <ul class="plain">
              {g.periods.map((p) => (
                <li key={p.from}>
                  {time(p.from)} to {time(p.to)}: <strong>{state(p)}</strong> {p.by && `by ${p.by}`} <span class="quiet">{p.why}</span>
                </li>
              ))}
            </ul>
            {g.more && <p class="quiet">More changes follow in the last period.</p>}
          </details>
          </div>
        </section>
      ))}
      {!!data?.omitted && <p class="quiet">{data.omitted} more gates are not shown.</p>}
    </>
  );
}

const time = (at: string) => new Date(at).toLocaleString();

const state = (p: Period) => (p.known ? (p.opened ? 'open' : 'closed') : 'not known');

// Bar is the periods of a gate as a picture: open periods are high, closed ones low. The list beside it has the same.
function Bar({ calendar, periods }: { calendar: GatesCalendar; periods: Period[] }) {
  const from = Date.parse(calendar.from);
  const scale = width / (Date.parse(calendar.to) - from);
  const x = (at: string) => (Date.parse(at) - from) * scale;
  const midnights: number[] = [];
  const first = new Date(from);
  first.setHours(24, 0, 0, 0);
  for (let at = first.getTime(); at < Date.parse(calendar.to); at += dayLength) {
    midnights.push(at);
  }
  const step = Math.ceil(midnights.length / 12);
  return (
    <svg class="calendar" viewBox={`0 0 ${width} 62`} role="img" aria-label="When the gate is open: the list of periods has the same">
      {periods.map((p) => (
        <rect
          key={p.from}
          class={state(p)}
          x={x(p.from)}
          width={Math.max(1, x(p.to) - x(p.from))}
          y={p.known && p.opened ? 4 : 26}
          height={p.known ? (p.opened ? 36 : 14) : 4}
        >
          <title>
            {time(p.from)} to {time(p.to)}: {state(p)}. {p.why}
          </title>
        </rect>
      ))}
      {midnights.map((at, n) => (
        <g key={at}>
          <line x1={(at - from) * scale} x2={(at - from) * scale} y1={40} y2={44} />
          {n % step === 0 && (
            <text x={(at - from) * scale} y={56}>
              {new Date(at).toLocaleDateString(undefined, { day: 'numeric', month: 'short' })}
            </text>
          )}
        </g>
      ))}
      <line class="now" x1={x(calendar.now)} x2={x(calendar.now)} y1={0} y2={44} />
    </svg>
  );
}
