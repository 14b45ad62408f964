import { LifeBuoy } from 'lucide-preact';
import { useEffect } from 'preact/hooks';
import { Code, Codes } from '../api';
import { useData, useTitle } from '../hooks';
import { Markdown } from '../markdown';
import { Empty, Heading, Loading, plural } from '../parts';
import { Place, setQuery } from '../router';

// Explain lists the codes of messages with what to do about them.
export function Explain({ place }: { place: Place }) {
  const q = place.query.get('q') ?? '';
  useTitle(q ? `Explain ${q}` : 'Explain a code');
  const { data, error } = useData<Codes>('explain', () => false);
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const exact = data?.codes.find((c) => [c.code.toLowerCase(), c.reason.toLowerCase()].includes(words.join(' ')));
  const finds = (c: Code) => words.every((w) => `${c.code} ${c.reason} ${c.text}`.toLowerCase().includes(w));
  const others = data?.codes.filter((c) => c !== exact && (exact || finds(c))) ?? [];
  useEffect(() => window.scrollTo(0, 0), [exact?.code]);
  return (
    <>
      <Heading title="Explain a code" sub="what a message means, and what to do" />
      <div class="filters">
        <input type="search" class="wide" aria-label="Search" placeholder="SLU-1101, GitOperationFailed, or words" value={q} maxLength={300}
          onInput={(e) => setQuery(place, { q: e.currentTarget.value })} />
      </div>
      {!data && <Loading error={error} />}
      {exact && <One of={exact} />}
      {data && (
        <p class="quiet" role="status">
          {exact ? `${plural(others.length, 'other entry', 'other entries')}` : plural(others.length, 'entry', 'entries')}
        </p>
      )}
      {data && !exact && others.length === 0 && <Empty icon={LifeBuoy}>No code, reason or text contains these words.</Empty>}
      {others.length > 0 && (
        <section class="card">
          <ul class="plain rows">
            {others.map((c) => (
              <li key={c.code}>
                <details open={others.length <= 3}>
                  <summary>
                    <span class="code">{c.code}</span> <strong>{c.reason}</strong> {c.needsNoAction && <span class="quiet">needs no action</span>}
                  </summary>
                  <Markdown text={c.text} />
                </details>
              </li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

function One({ of: c }: { of: Code }) {
  return (
    <section class="card">
      <header>
        <span class="code">{c.code}</span> <h2>{c.reason}</h2> {c.needsNoAction && <span class="quiet">needs no action</span>}
      </header>
      <div class="pad prose">
        <Markdown text={c.text} />
      </div>
    </section>
  );
}
