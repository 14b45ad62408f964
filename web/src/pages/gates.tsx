import { useState } from 'preact/hooks';
import { ActionBar } from '../actions';
import { Calendar, GateEntry, path, Rule } from '../api';
import { useData, useTitle } from '../hooks';
import { Ago, Loading, ObjectLink, Problem } from '../parts';
import { Place, setQuery } from '../router';
import { GateCalendar } from './calendar';
import { PendingChange, Risk } from './object';

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
  const [calendar, setCalendar] = useState(false);
  const gate = entry.item.gate;
  if (!gate) {
    return null;
  }
  return (
    <section class={gate.count > 0 ? 'gate waits' : 'gate'}>
      <header class="section">
        <h2>
          <ObjectLink id={entry.item.id} />
        </h2>
        <span class={gate.open ? 'badge ready' : 'badge waiting'}>{gate.open ? '⇈ open' : '⊟ closed'}</span>
        {gate.required > 0 && (
          <span>
            {gate.approved} of {gate.required} approvals
          </span>
        )}
        {gate.until && (
          <span class="quiet">
            changes <Ago at={gate.until} />
          </span>
        )}
      </header>
      <p>{gate.why}</p>
      <Rules rules={gate.rules ?? []} />
      {gate.count === 0 && <p class="quiet">Nothing waits.</p>}
      {entry.waiting.map((w) => (
        <div key={w.id}>
          <ObjectLink id={w.id} />
          {w.pending ? <PendingChange pending={w.pending} why={w.why} /> : <Risk level={w.risk} />}
          {w.error && <Problem error={new Error(w.error)} />}
        </div>
      ))}
      {gate.count > entry.waiting.length && <p class="quiet">{gate.count - entry.waiting.length} more wait.</p>}
      <ActionBar id={entry.item.id} actions={['approve', 'open', 'close', 'override']} seen={entry.seen} onDone={onDone} />
      <button class="small" aria-expanded={calendar} onClick={() => setCalendar(!calendar)}>
        Calendar and history
      </button>
      {calendar && <Days id={entry.item.id} />}
    </section>
  );
}

const outcomes = { pass: 'the change passes', deny: 'the change is denied', approvals: '' };

// Rules says who may approve, and what the gate decides by the content of a change.
function Rules({ rules }: { rules: Rule[] }) {
  return (
    <ul class="plain">
      {rules.map((r) => (
        <li key={r.name}>
          {r.name ? (
            <>
              Rule <code>{r.name}</code>:{' '}
            </>
          ) : null}
          {outcomes[r.outcome]}
          {r.required ? <Approvers rule={r} /> : null} <span class="quiet">{r.message}</span>
        </li>
      ))}
    </ul>
  );
}

function Approvers({ rule }: { rule: Rule }) {
  const who = [
    rule.groups && `members of ${rule.groups.join(', ')}`,
    rule.users && rule.users.join(', '),
    rule.omitted && `${rule.omitted} more`,
  ].filter(Boolean);
  return (
    <>
      needs {rule.required} {rule.required === 1 ? 'approval' : 'approvals'}. May approve: {who.join(' and ') || 'everybody with the right to create a GateApproval'}.
    </>
  );
}

function Days({ id }: { id: string }) {
  const { data, error } = useData<Calendar>(`objects/${path(id)}/calendar`, (c) => c.id === id);
  if (!data) {
    return <Loading error={error} />;
  }
  return (
    <div class="columns">
      <div>
        <h3>Next 14 days</h3>
        {data.next.length === 0 && <p class="quiet">No scheduled change.</p>}
        <ul class="plain">
          {data.next.map((t) => (
            <li>
              {new Date(t.at).toLocaleString()}: {t.opened ? 'opens' : 'closes'} {t.entry && `(${t.entry})`}{' '}
              <span class="quiet">{t.why}</span>
            </li>
          ))}
        </ul>
        {data.more && <p class="quiet">And more.</p>}
      </div>
      <div>
        <h3>History</h3>
        {data.past.length === 0 && <p class="quiet">No history.</p>}
        <ul class="plain">
          {data.past.map((h) => (
            <li>
              {new Date(h.at).toLocaleString()}: {h.name} {h.by && `by ${h.by}`} <span class="quiet">{h.text}</span>
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}
