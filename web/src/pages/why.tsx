import { useState } from 'preact/hooks';
import { Answer, Chain, Step } from '../api';
import { useData, useNow, useTitle } from '../hooks';
import { Ago, Brief, duration, Heading, Loading, ObjectLink, ObjectName, Outside, Pill, Problem } from '../parts';
import { isHeldByGate, StepIcon } from '../pipeline';
import { Place, setQuery } from '../router';
import { Moment } from './gate';

const words = { done: 'done', current: 'now', blocked: 'blocked', ahead: 'later', skipped: 'not used' };

// Why shows where a change is, and what blocks it.
export function Why({ place }: { place: Place }) {
  useTitle('Why is it not live?');
  const q = place.query.get('q') ?? '';
  const [text, setText] = useState(q);
  const { data, error } = useData<Answer>('why?q=' + encodeURIComponent(q));
  return (
    <>
      <Heading title="Why is it not live?" sub="where a change is, and what blocks it" />
      <form
        class="filters"
        role="search"
        onSubmit={(e) => {
          e.preventDefault();
          setQuery(place, { q: text });
        }}
      >
        <label>
          <span class="visually-hidden">Commit, revision, pull request, image, object or workload</span>
          <input class="wide" type="search" maxLength={1000} value={text}
            placeholder="3f2a9c1, #42, web:1.4.2, Deployment/shop/web" onInput={(e) => setText(e.currentTarget.value)} />
        </label>
        <button class="primary">Ask</button>
      </form>
      <Problem error={error} />
      {!data && <Loading error={error} />}
      {data?.note && <p>{data.note}</p>}
      {data?.chains.map((c) => (
        <Way key={c.target.id} chain={c} />
      ))}
      {!!data?.omitted && <p class="quiet">{data.omitted} more match: ask for something more exact.</p>}
    </>
  );
}

// Spent shows how long a step took, or how long it has lasted, and when it ended.
function Spent({ step }: { step: Step }) {
  const now = useNow();
  if (step.state === 'ahead' || step.state === 'skipped') {
    return null;
  }
  const end = step.state === 'done' ? step.at : new Date(now).toISOString();
  const took = step.from && end ? Date.parse(end) - Date.parse(step.from) : undefined;
  return (
    <span class="quiet">
      {took !== undefined && (took > 0 || step.state !== 'done') && (
        <>{step.state === 'done' ? 'took ' : 'for '}{duration(Math.max(0, took))} </>
      )}
      <Ago at={step.at} />
    </span>
  );
}

function Way({ chain }: { chain: Chain }) {
  return (
    <section class="card">
      <header>
        <h2>
          <ObjectName id={chain.target.id} />
        </h2>
        {chain.live ? <Pill state="ready">live</Pill> : <Pill state={chain.target.state} />}
        <span class="end">
          <Total steps={chain.steps} />
        </span>
      </header>
      <ol class="chain">
        {chain.steps.map((s) => (
          <li class={`${s.state} ${isHeldByGate(s) ? 'at-gate' : ''}`}>
            <span class="mark">
              <StepIcon name={s.name} size={12} />
            </span>
            <strong>
              {s.name} <span class="quiet">{words[s.state]}</span>
            </strong>
            {s.object && <ObjectLink id={s.object} />}
            <Brief text={s.text} />
            <Outside to={s.url}>{s.url ?? ''}</Outside>
            <Spent step={s} />
            {s.until && (
              <span>
                Until <Moment at={s.until} />
              </span>
            )}
            {s.do && s.state !== 'done' && <em>What to do: {s.do}.</em>}
          </li>
        ))}
      </ol>
    </section>
  );
}

// Total says how long the change took from the push until it was live.
function Total({ steps }: { steps: Step[] }) {
  const first = steps.find((s) => s.from && s.state === 'done')?.from;
  const last = steps[steps.length - 1];
  return first && last?.state === 'done' && last.at ? (
    <span class="quiet">{duration(Date.parse(last.at) - Date.parse(first))} from the first known step until it was healthy</span>
  ) : null;
}
