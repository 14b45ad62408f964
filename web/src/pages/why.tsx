import { useState } from 'preact/hooks';
import { Answer, Chain } from '../api';
import { useData, useTitle } from '../hooks';
import { Ago, Badge, Loading, ObjectLink, Problem } from '../parts';
import { Place, setQuery } from '../router';

const words = { done: '✓ done', current: '↻ now', blocked: '✕ blocked', ahead: '· later' };

// Why shows where a change is, and what blocks it.
export function Why({ place }: { place: Place }) {
  useTitle('Why is it not live?');
  const q = place.query.get('q') ?? '';
  const [text, setText] = useState(q);
  const { data, error } = useData<Answer>('why?q=' + encodeURIComponent(q));
  return (
    <>
      <h1>Why is it not live?</h1>
      <form
        class="filters"
        role="search"
        onSubmit={(e) => {
          e.preventDefault();
          setQuery(place, { q: text });
        }}
      >
        <label>
          Commit, revision, image or object{' '}
          <input type="search" size={45} value={text} onInput={(e) => setText(e.currentTarget.value)} />
        </label>
        <button class="primary">Ask</button>
      </form>
      <Problem error={error} />
      {!data && <Loading error={error} />}
      {data?.note && <p>{data.note}</p>}
      {data?.chains.map((c) => (
        <Way key={c.target.id} chain={c} />
      ))}
    </>
  );
}

function Way({ chain }: { chain: Chain }) {
  return (
    <section class="card">
      <header class="section">
        <h2>
          <ObjectLink id={chain.target.id} />
        </h2>
        {chain.live ? <strong>live</strong> : <Badge state={chain.target.state} />}
      </header>
      <ol class="chain">
        {chain.steps.map((s) => (
          <li class={s.state}>
            <strong>
              {s.name} <span class="quiet">{words[s.state]}</span>
            </strong>
            <ObjectLink id={s.object} />
            <span>{s.text}</span>
            <Ago at={s.at} />
            {s.do && s.state === 'blocked' && <em>What to do: {s.do}.</em>}
          </li>
        ))}
      </ol>
    </section>
  );
}
