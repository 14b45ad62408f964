import { Server, Unplug } from 'lucide-preact';
import { Cluster, Clusters as Data, Item } from '../api';
import { useData, useTitle } from '../hooks';
import { Icon } from '../icons';
import { Ago, Brief, Empty, Health, Heading, Loading, ObjectName, Pill, plural, Problem, Revision } from '../parts';
import { Link } from '../router';

// Clusters shows what deploys to each cluster, those that do not answer first.
export function Clusters() {
  useTitle('Clusters');
  const { data, error } = useData<Data>('clusters', (c) => /^(Kustomization|HelmRelease)\//.test(c.id));
  return (
    <>
      <Heading title="Clusters" sub="that Kustomizations and HelmReleases deploy to, by their credentials" />
      <Problem error={error} />
      {!data && <Loading error={error} />}
      {data?.clusters.length === 0 && <Empty icon={Server}>Nothing deploys to a cluster yet.</Empty>}
      <div class="grid three">
        {data?.clusters.map((c) => (
          <One key={c.name} of={c} />
        ))}
      </div>
    </>
  );
}

function One({ of: c }: { of: Cluster }) {
  const objects = `/objects?cluster=${encodeURIComponent(c.name)}`;
  return (
    <section class="card">
      <header>
        <span class={`tile-icon ${c.unreachable ? 'failed' : ''}`}>
          <Icon of={c.unreachable ? Unplug : Server} />
        </span>
        <h2>{c.name}</h2>
        <span class="end">{c.unreachable ? <Pill state="failed">does not answer</Pill> : <Worst of={c} />}</span>
      </header>
      <div class="pad stack">
        <Health counts={c.counts} />
        <div class="line">
          <Link to={objects}>{plural(c.objects, 'object')}</Link>
          <span class="quiet">·</span>
          {c.revisions.length === 1 ? <Revision of={c.revisions[0]} /> : <span title={c.revisions.join('\n')}>{plural(c.different, 'revision')}</span>}
        </div>
        {c.unreachable ? <Cause of={c.unreachable} words="The last request failed" /> : c.problem && <Cause of={c.problem} words="The worst object" />}
      </div>
    </section>
  );
}

function Worst({ of: c }: { of: Cluster }) {
  return <Pill state={c.problem?.state ?? 'ready'} />;
}

function Cause({ of: item, words }: { of: Item; words: string }) {
  return (
    <div>
      <h3>
        {words} <Ago at={item.since} />
      </h3>
      <ObjectName id={item.id} />
      <p class="clamp">
        <Brief text={item.message} />
      </p>
    </div>
  );
}
