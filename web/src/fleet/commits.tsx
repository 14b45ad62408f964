import { GitCommitHorizontal } from 'lucide-preact';
import { useMemo } from 'preact/hooks';
import { path } from '../api';
import { useTitle } from '../hooks';
import { Ago, Author, Card, Empty, Heading, plural, Revision } from '../parts';
import { Link, Place, setQuery } from '../router';
import { Cluster, Commit, commitsOf, has, labelKeys, Progress, progresses, rollout, Stage } from './fleet';

const shownCommits = 20;
const shownNames = 30; // clusters of a part of a stage

const looks: Record<Progress, string> = { live: 'ready', newer: 'later', 'rolling out': 'progressing', waiting: 'waiting', failed: 'failed', behind: 'suspended' };

// Commits shows how far each commit is in all clusters, by stage.
export function Commits({ place, clusters }: { place: Place; clusters: Cluster[] }) {
  useTitle('Commits');
  const labels = labelKeys(clusters);
  const label = place.query.get('by') ?? (labels.includes('stage') ? 'stage' : (labels[0] ?? ''));
  const only = place.query.get('revision');
  const commits = useMemo(() => [...commitsOf(clusters).values()].flat().filter((c) => c.at > 0 && (!only || c.revision === only)).sort((a, b) => b.at - a.at), [clusters, only]);
  return (
    <>
      <Heading title="Commits" sub="how far each is in all clusters, by stage" />
      <div class="filters">
        <label>
          By label
          <select value={label} onChange={(e) => setQuery(place, { by: e.currentTarget.value })}>
            {labels.map((l) => (
              <option value={l}>{l}</option>
            ))}
          </select>
        </label>
        {only && <button onClick={() => setQuery(place, { revision: '' })}>Show all commits</button>}
      </div>
      {commits.length === 0 && (
        <section class="card">
          <Empty icon={GitCommitHorizontal}>{only ? 'No cluster has this revision now.' : 'No cluster has reported a revision yet.'}</Empty>
        </section>
      )}
      {commits.slice(0, shownCommits).map((c) => (
        <OneCommit key={c.source + c.revision} of={c} clusters={clusters} label={label} />
      ))}
      {commits.length > shownCommits && <p class="quiet">{plural(commits.length - shownCommits, 'older commit')} not shown.</p>}
    </>
  );
}

function OneCommit({ of: c, clusters, label }: { of: Commit; clusters: Cluster[]; label: string }) {
  const stages = rollout(clusters, c, label);
  return (
    <Card
      title={c.subject || 'A revision'}
      extra={
        <>
          <Revision of={c.revision} />{' '}
          <span class="quiet">
            <Author of={c.author} /> <Ago at={new Date(c.at).toISOString()} />
          </span>
        </>
      }
    >
      <p class="quiet pad long">{c.source}</p>
      <ul class="plain rows">
        {stages.map((s) => (
          <OneStage key={s.name} of={s} label={label} />
        ))}
      </ul>
    </Card>
  );
}

function OneStage({ of: s, label }: { of: Stage; label: string }) {
  const live = progresses.filter(has).reduce((n, p) => n + (s.by[p]?.length ?? 0), 0);
  const words = progresses.filter((p) => s.by[p]).map((p) => `${s.by[p]?.length} ${p}`);
  return (
    <li>
      <div class="line">
        <strong>{s.name || (label ? `without ${label}` : 'all')}</strong>
        <span class="quiet end">{words.join(', ')}</span>
      </div>
      <div class="progress" role="progressbar" aria-label={`${s.name || 'all'}: clusters with this commit`} aria-valuenow={live} aria-valuemin={0} aria-valuemax={s.total} aria-valuetext={`${live} of ${s.total} have it`}>
        {progresses.map((p) => s.by[p] && <span class={looks[p]} style={{ flexGrow: s.by[p]?.length }} />)}
      </div>
      {live < s.total && (
        <details>
          <summary>{plural(s.total - live, 'cluster')} without it</summary>
          <ul>
            {progresses
              .filter((p) => !has(p) && s.by[p])
              .map((p) => (
                <li>
                  <p>
                    {p}:{' '}
                  {s.by[p]?.slice(0, shownNames).map((c) => (
                    <>
                      <Link to={'/summary/' + path(c.name)}>{c.name}</Link>{' '}
                    </>
                  ))}
                  {(s.by[p]?.length ?? 0) > shownNames && `and ${(s.by[p]?.length ?? 0) - shownNames} more`}
                  </p>
                </li>
              ))}
          </ul>
        </details>
      )}
    </li>
  );
}
