import { Group, Overview as Data, states } from '../api';
import { useData, useTitle } from '../hooks';
import { Ago, Badge, Health, ItemLine, Loading, ObjectLink, Problem, Section } from '../parts';
import { Link } from '../router';

// Overview shows the health of everything, and what to look at first.
export function Overview() {
  useTitle('Overview');
  const { data, error } = useData<Data>('overview');
  if (!data) {
    return <Loading error={error} />;
  }
  return (
    <>
      <h1>Overview</h1>
      <Problem error={error} />
      <ul class="tiles">
        {states.map((s) => (
          <li>
            <Link to={`/objects?state=${s}`} class={`tile ${s}`}>
              <strong>{data.counts[s] ?? 0}</strong> <Badge state={s} />
            </Link>
          </li>
        ))}
        <li>
          <Link to="/gates" class="tile">
            <strong>{data.atGates}</strong> at gates
          </Link>
        </li>
      </ul>
      <Section title="What fails, first cause first">
        {data.problems.length === 0 && <p class="quiet">Nothing fails.</p>}
        <ul class="plain">
          {data.problems.map((p) => (
            <li key={p.item.id} class="card">
              <div class="line">
                <Badge state={p.item.state} />
                <ObjectLink id={p.item.id} />
                <span class="quiet">
                  since <Ago at={p.item.since} />
                </span>
              </div>
              <p>{p.item.message}</p>
              {p.count > 0 && (
                <details>
                  <summary>
                    {p.count} {p.count === 1 ? 'object fails or waits' : 'objects fail or wait'} because of it
                  </summary>
                  <ul>
                    {(p.dependents ?? []).map((id) => (
                      <li>
                        <ObjectLink id={id} />
                      </li>
                    ))}
                  </ul>
                </details>
              )}
            </li>
          ))}
        </ul>
      </Section>
      <Section title="Changed in the last hour" extra={<Link to="/changes">all changes</Link>}>
        {!data.recent?.length && <p class="quiet">Nothing changed.</p>}
        <ul class="plain">
          {(data.recent ?? []).slice(0, 10).map((i) => (
            <li key={i.id}>
              <ItemLine item={i} />
            </li>
          ))}
        </ul>
      </Section>
      <div class="columns">
        <Groups title="By namespace" groups={data.byNamespace} to={(n) => `/objects?namespace=${encodeURIComponent(n)}`} />
        <Groups title="By kind" groups={data.byKind} to={(n) => `/objects?kind=${encodeURIComponent(n)}`} />
        <Groups title="By source" groups={data.bySource} to={(n) => `/graph?root=${encodeURIComponent(n)}`} />
      </div>
    </>
  );
}

const shownGroups = 12;

function Groups({ title, groups, to }: { title: string; groups: Group[]; to: (name: string) => string }) {
  const row = (g: Group) => (
    <li key={g.name} class="group">
      <Link to={to(g.name)}>{g.name}</Link>
      <Health counts={g.counts} />
    </li>
  );
  return (
    <Section title={title}>
      <ul class="plain">{groups.slice(0, shownGroups).map(row)}</ul>
      {groups.length > shownGroups && (
        <details>
          <summary>{groups.length - shownGroups} more</summary>
          <ul class="plain">{groups.slice(shownGroups).map(row)}</ul>
        </details>
      )}
    </Section>
  );
}
