import { server } from '../base';
import { GitPullRequest } from 'lucide-preact';
import { useEffect, useState } from 'preact/hooks';
import { get, State } from '../api';
import { useTitle } from '../hooks';
import { Ago, Dot, Empty, Heading, Loading, plural, Problem } from '../parts';
import { Link, Place, setQuery } from '../router';
import { Risk } from './pending';

// Summary is the review of a pull request in short, as internal/review answers it.
export interface Summary {
  repository: string;
  number: number;
  title: string;
  author: string;
  url: string;
  branch: string;
  base: string;
  commit: string;
  state: 'waiting' | 'running' | 'done' | 'failed';
  at?: string;
  seconds?: number;
  error?: string;
  sandboxed?: boolean;
  offline?: boolean;
  risk: string;
  passes: boolean;
  text?: string;
  counts?: Record<string, number>;
  files: number;
  applications: number;
  clusters: number;
  namespaces: number;
  held: number;
  missingImages: number;
  schemaErrors: number;
}

// reviewState returns the state of a review by the words of the UI.
export function reviewState(s: Summary): State {
  if (s.state === 'waiting' || s.state === 'running') {
    return 'progressing';
  }
  if (s.state === 'failed' || !s.passes) {
    return 'failed';
  }
  return s.held > 0 ? 'waiting' : 'ready';
}

// useReviews reads from the API, and again when reviews change.
export function useReviews<T>(path: string): { data?: T; error?: Error } {
  const [state, setState] = useState<{ path: string; data?: T; error?: Error }>({ path });
  useEffect(() => {
    const control = new AbortController();
    let busy = false;
    let again = false;
    const read = async () => {
      again = busy;
      if (busy) {
        return;
      }
      busy = true;
      try {
        const data = await get<T>(path, control.signal);
        setState({ path, data });
      } catch (error) {
        if (!control.signal.aborted) {
          setState((before) => ({ path, data: before.path === path ? before.data : undefined, error: error as Error }));
        }
      }
      busy = false;
      if (again && !control.signal.aborted) {
        void read();
      }
    };
    void read();
    const events = new EventSource(server + '/api/v1/reviews/stream');
    events.addEventListener('reviews', () => void read());
    return () => {
      control.abort();
      events.close();
    };
  }, [path]);
  return state.path === path ? state : {};
}

// matches reports whether a text contains all words, in any case.
export function matches(text: string, words: string): boolean {
  const all = text.toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((w) => all.includes(w));
}

// size describes how much a pull request changes.
function size(s: Summary): string {
  const objects = Object.values(s.counts ?? {}).reduce((a, b) => a + b, 0);
  return `${plural(objects, 'object')}, ${plural(s.applications, 'application')}, ${plural(s.files, 'file')}`;
}

// Reviews lists the open pull requests.
export function Reviews({ place }: { place: Place }) {
  useTitle('Reviews');
  const { data, error } = useReviews<{ reviews: Summary[]; problems?: Record<string, string> }>('reviews');
  const q = place.query.get('q') ?? '';
  const shown = data?.reviews.filter((s) => matches([s.repository, s.number, s.title, s.author, s.branch, s.base, s.risk].join(' '), q));
  return (
    <>
      <Heading title="Reviews" sub="open pull requests, and what each would do" />
      <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
        <label>
          <span class="visually-hidden">Search</span>
          <input
            class="wide"
            type="search"
            maxLength={500}
            value={q}
            onInput={(e) => setQuery(place, { q: e.currentTarget.value })}
            placeholder="title, author, branch, risk"
          />
        </label>
      </form>
      <Problem error={error} />
      {Object.entries(data?.problems ?? {}).map(([name, why]) => (
        <p role="alert" class="alert">
          The pull requests of {name} cannot be listed: {why}
        </p>
      ))}
      {!shown && <Loading error={error} />}
      {shown?.length === 0 && <Empty icon={GitPullRequest}>No open pull request{q ? ' matches.' : '.'}</Empty>}
      {shown && shown.length > 0 && (
        <div class="scroll card" tabIndex={0} role="region" aria-label="Table of pull requests">
          <table class="cards">
            <thead>
              <tr>
                <th>Pull request</th>
                <th>Risk</th>
                <th>Would do</th>
                <th>Size</th>
                <th>Found</th>
                <th>Reviewed</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((s) => (
                <tr key={`${s.repository}/${s.number}`}>
                  <td>
                    <div class="line">
                      <Dot state={reviewState(s)} />
                      <Link to={`/reviews/${s.repository}/${s.number}`} class="name">
                        {s.title || `Pull request ${s.number}`}
                      </Link>
                    </div>
                    <div class="quiet">
                      {s.repository} #{s.number} · {s.author} · {s.branch} → {s.base}
                    </div>
                  </td>
                  <td>{s.at && <Risk level={s.risk} />}</td>
                  <td>{s.error ?? s.text ?? s.state}</td>
                  <td>{s.at && size(s)}</td>
                  <td>
                    <Found of={s} />
                  </td>
                  <td>{s.state === 'running' ? 'now' : <Ago at={s.at} />}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

// Found lists what somebody has to look at.
export function Found({ of: s }: { of: Summary }) {
  const found = [
    s.held > 0 && `gates hold ${s.held}`,
    s.missingImages > 0 && plural(s.missingImages, 'missing image'),
    s.schemaErrors > 0 && plural(s.schemaErrors, 'schema error'),
    s.sandboxed && 'sandboxed',
  ].filter(Boolean);
  return <span>{found.join(', ')}</span>;
}
