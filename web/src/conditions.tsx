import { Condition, Event } from './api';
import { Ago, Brief, Empty, Pill, Problem } from './parts';

// Conditions lists what controllers report of an object.
export function Conditions({ of }: { of: Condition[] | null }) {
  if (!of?.length) {
    return <Empty>Its controller has reported nothing yet.</Empty>;
  }
  return (
    <section class="card">
      <ul class="plain rows">
        {of.map((c) => (
          <li key={c.type}>
            <div class="line">
              <strong>
                {c.type}: {c.status}
              </strong>
              <span class="quiet">{c.reason}</span>
              <span class="end">
                <Ago at={c.lastTransitionTime} />
              </span>
            </div>
            <p>
              <Brief text={c.message} />
            </p>
          </li>
        ))}
      </ul>
    </section>
  );
}

// Events lists what happened to an object, the newest first.
export function Events({ of, error }: { of: Event[]; error?: string }) {
  if (error) {
    return <Problem error={new Error(error)} />;
  }
  if (of.length === 0) {
    return <Empty>No events in the last hour.</Empty>;
  }
  return (
    <section class="card">
      <ul class="plain rows">
        {of.map((e) => (
          <li>
            <div class="line">
              <Pill state={e.type === 'Warning' ? 'failed' : 'ready'}>{e.type}</Pill>
              <strong>{e.reason}</strong>
              {e.count > 1 && <span class="quiet">{e.count} times</span>}
              <span class="end">
                <Ago at={e.at} />
              </span>
            </div>
            <p>
              <Brief text={e.message} />
            </p>
          </li>
        ))}
      </ul>
    </section>
  );
}
