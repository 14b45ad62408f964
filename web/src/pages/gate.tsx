import { useState } from 'preact/hooks';
import { ActionBar } from '../actions';
import { Calendar, Detail, FailedChange, Gate, GateEntry, get, Item, path, Rule, Wave } from '../api';
import { useData } from '../hooks';
import { Ago, Brief, initials, Loading, ObjectLink, ObjectName, Pill, Problem, Revision } from '../parts';
import { PendingChange, Risk } from './pending';

// GateState says whether a gate is open, until when, and how many approvals it has.
export function GateState({ item }: { item: Item }) {
  const gate = item.gate;
  if (!gate) {
    return null;
  }
  return (
    <>
      <Pill state={gate.open ? 'ready' : 'waiting'}>{gate.open ? 'open' : 'closed'}</Pill>
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
    </>
  );
}

// GateBody is why a gate is open or closed, what waits there with its changes, and what can be done.
export function GateBody({ entry, onDone }: { entry: GateEntry; onDone: () => void }) {
  const [calendar, setCalendar] = useState(false);
  const gate = entry.item.gate;
  if (!gate) {
    return null;
  }
  return (
    <>
      {gate.why && (
        <p>
          <Brief text={gate.why} />
        </p>
      )}
      {gate.open && !!gate.revisions?.length && (
        <p>
          Lets only these revisions through:{' '}
          {gate.revisions.map((r) => (
            <>
              <Revision of={r} />{' '}
            </>
          ))}
        </p>
      )}
      <Failures failures={gate.failures ?? []} />
      <Checks gate={gate} />
      <Waves waves={gate.waves ?? []} />
      <Rules rules={gate.rules ?? []} />
      <OnFailure gate={gate} />
      <Approvals gate={gate} />
      {gate.count === 0 && <p class="quiet">Nothing waits.</p>}
      {entry.waiting.map((w) => (
        <Waits key={w.id} w={w} />
      ))}
      {entry.omitted > 0 && (
        <p>
          {entry.omitted} more {entry.omitted === 1 ? 'waits' : 'wait'} that you may not see, or that this page does not list. To
          approve them, use <code>sluice gate approve</code>.
        </p>
      )}
      <ActionBar id={entry.item.id} actions={['approve', 'open', 'close', 'override']} seen={entry.seen} omitted={entry.omitted}
        mayNotApprove={entry.mayNot} entry={entry} onDone={onDone} />
      <button class="small" aria-expanded={calendar} onClick={() => setCalendar(!calendar)}>
        Calendar and history
      </button>
      {calendar && <Days id={entry.item.id} />}
    </>
  );
}

// Waits is an object that waits, with what would change. Of the objects far down the list, the change is read on request.
function Waits({ w }: { w: GateEntry['waiting'][0] }) {
  const [more, setMore] = useState<Detail>();
  const [error, setError] = useState<Error>();
  const load = () => {
    get<Detail>('objects/' + path(w.id)).then(setMore, setError);
  };
  const pending = w.pending ?? more?.pending;
  return (
    <div class="waits">
      <ObjectName id={w.id} />
      {pending ? (
        <PendingChange pending={pending} why={w.why ?? more?.why} />
      ) : (
        <span>
          <Revision of={w.revision} /> <Risk level={w.risk} /> <span class="quiet">{w.message}</span>{' '}
          {!w.error && (
            <button class="small" onClick={load}>
              what would change
            </button>
          )}
        </span>
      )}
      {w.error && <Problem error={new Error(w.error)} />}
      <Problem error={error} />
    </div>
  );
}

// Checks says what each check found, which revision it lets through, and which one soaks until when.
function Checks({ gate }: { gate: Gate }) {
  return (
    <ul class="plain">
      {gate.checks?.map((c) => (
        <li key={c.name}>
          <Pill state={c.holds ? 'ready' : 'waiting'}>{c.holds ? 'passes' : 'does not pass'}</Pill> check{' '}
          <code>{c.name}</code>
          {c.promoted && (
            <>
              , lets <Revision of={c.promoted} /> through since <Ago at={c.promotedAt} />
            </>
          )}
          {c.soaks && (
            <>
              , <Revision of={c.soaks} /> soaks until <Moment at={c.until} />
            </>
          )}
          {c.message && !gate.why?.includes(c.message) && (
            <p class="quiet">
              <Brief text={c.message} />
            </p>
          )}
        </li>
      ))}
    </ul>
  );
}

// Waves say how far the revision of each source has come.
function Waves({ waves }: { waves: Wave[] }) {
  return (
    <ul class="plain">
      {waves.map((w) => (
        <li key={w.source}>
          <Pill state={w.complete ? 'ready' : 'progressing'}>{w.complete ? 'all waves' : w.name ? `wave ${w.name}` : 'last wave'}</Pill>{' '}
          <Revision of={w.revision} /> of <code>{w.source}</code>
          {w.until && (
            <>
              , soaks until <Moment at={w.until} />
            </>
          )}
          {w.message && (
            <p class="quiet">
              <Brief text={w.message} />
            </p>
          )}
        </li>
      ))}
    </ul>
  );
}

// Moment shows a time exactly, and how far away it is.
export function Moment({ at }: { at?: string }) {
  return at ? (
    <>
      {new Date(at).toLocaleString()} (<Ago at={at} />)
    </>
  ) : null;
}

// Failures are changes that the gate let through and that became unhealthy.
function Failures({ failures }: { failures: FailedChange[] }) {
  return (
    <ul class="plain">
      {failures.map((f) => (
        <li class="alert" key={f.revision + f.since}>
          <Pill state="failed">failed</Pill> <Revision of={f.revision} /> <Ago at={f.since} />
          {f.resolvedAt && <span class="quiet">; what it changed is healthy again: only this revision is refused</span>}
          <p>
            <Brief text={f.message} />
          </p>
          {f.objects?.map((id) => (
            <>
              <ObjectLink id={id} />{' '}
            </>
          ))}
        </li>
      ))}
    </ul>
  );
}

function OnFailure({ gate }: { gate: Gate }) {
  return gate.onFailure ? (
    <p class="quiet">
      If a change becomes unhealthy within {gate.soak}, the gate closes
      {gate.onFailure === 'Revert' ? ', and what has this change goes back to what was healthy before' : ''}.
    </p>
  ) : null;
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

// Approvals says who approved what, and why an approval does not count.
function Approvals({ gate }: { gate: Gate }) {
  return (
    <ul class="plain">
      {gate.approvals?.map((a) => (
        <li key={a.name} class="line">
          <span class="avatar" aria-hidden="true">
            {initials(a.user)}
          </span>
          <strong>{a.user}</strong> approved <Revision of={a.revision} /> <Ago at={a.at} />
          {!a.counts && <Pill state="suspended">does not count</Pill>} <span class="quiet">{a.message}</span>
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
