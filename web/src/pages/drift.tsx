import { Drift, path } from '../api';
import { useData } from '../hooks';
import { KindIcon } from '../icons';
import { ForeignFields, GitNote } from '../panel';
import { Card, Empty, Loading, Pill, plural } from '../parts';

// NotFromGit is what differs between git and the cluster, of all that an object applied.
export function NotFromGit({ id }: { id: string }) {
  const { data, error } = useData<Drift>(`objects/${path(id)}/drift`, (c) => c.id === id);
  if (!data) {
    return <Loading error={error} />;
  }
  const hidden = data.objects.filter((o) => o.hidden).length;
  const extra = [
    `${plural(data.equal, 'object')} as in git`,
    hidden && `${plural(hidden, 'object')} not compared`,
    data.omitted && `${plural(data.omitted, 'more object')} not read`,
  ];
  return (
    <Card title="Live against git" extra={<span class="quiet">{extra.filter(Boolean).join(' · ')}</span>}>
      <div class="quiet pad">
        <p>Objects that are missing, and fields that others than the controllers set or removed.</p>
        <GitNote of={data} />
      </div>
      {data.objects.length === 0 && <Empty>{data.equal ? 'Everything is as git declares it.' : 'It applied no objects.'}</Empty>}
      <ul class="plain rows">
        {data.objects.map((o) => (
          <li key={`${o.group} ${o.kind} ${o.namespace} ${o.name}`}>
            <div class="line">
              <KindIcon kind={o.kind} /> <strong class="name">{o.name}</strong>
              <span class="quiet">
                {o.namespace && `${o.namespace} · `}
                {o.kind}
              </span>
              <span class="end">
                {o.missing && <Pill state="failed">missing</Pill>}
                {o.hidden && <Pill state="suspended">hidden</Pill>}
              </span>
            </div>
            {o.hidden && <p class="quiet">{o.hidden}</p>}
            <ForeignFields of={o.fields} />
          </li>
        ))}
      </ul>
    </Card>
  );
}
