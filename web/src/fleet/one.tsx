import { ExternalLink, Server } from 'lucide-preact';
import { useEffect, useState } from 'preact/hooks';
import { path } from '../api';
import { useTitle } from '../hooks';
import { Icon, KindIcon } from '../icons';
import { Ago, Author, Brief, Card, duration, Empty, Health, Heading, objectPath, Pill, plural, Problem, Revision } from '../parts';
import { Cluster, conditionOf, Revision as Source } from './fleet';
import { One } from './inbox';
import { ConditionPill, InCluster, Labels } from './parts';

// useWhole reads the whole summary of a cluster: the list has only a part of it. It is read again when the list changes.
function useWhole(name: string, known?: Cluster): { data?: Cluster; error?: Error } {
  const [state, setState] = useState<{ data?: Cluster; error?: Error }>({});
  useEffect(() => {
    const control = new AbortController();
    fetch('/fleet/v1/clusters/' + path(name), { signal: control.signal })
      .then(async (r) => {
        const body = (await r.json()) as Cluster & { error?: string };
        setState(r.ok ? { data: body } : { error: new Error(body.error ?? `The hub answered ${r.status}.`) });
      })
      .catch((e: Error) => control.signal.aborted || setState((before) => ({ ...before, error: e })));
    return () => control.abort();
  }, [name, known]);
  return state;
}

// OneCluster is what the hub knows of a cluster, and the way into its UI.
export function OneCluster({ name, known }: { name: string; known?: Cluster }) {
  useTitle(name);
  const { data, error } = useWhole(name, known);
  const c = data ?? known;
  if (!c) {
    return (
      <section class="card">
        <Empty icon={Server}>The hub does not know cluster {name}.</Empty>
      </section>
    );
  }
  const s = c.summary;
  return (
    <>
      <Heading title={name} icon={<Icon of={Server} size={20} />} sub={s ? `Sluice ${s.version}${s.kubernetes ? ` · Kubernetes ${s.kubernetes}` : ''}` : undefined}>
        <ConditionPill of={c} />
        <span class="end">
          {c.linked && (
            <InCluster of={c} class="button primary" to="/">
              <Icon of={ExternalLink} size={14} /> Open its UI
            </InCluster>
          )}
        </span>
      </Heading>
      <Problem error={error} />
      <Labels of={c} />
      {conditionOf(c) === 'silent' && (
        <p class="alert">
          The hub last heard of this cluster <Ago at={c.received} />. What you see is of then: the cluster may be fine and cannot reach the hub, or it is down.
        </p>
      )}
      {c.status === 'Expected' && <p class="alert waiting">This cluster is registered, and has never reported. Check --report-to and --report-as of its controller.</p>}
      {c.refused && <p class="alert">The last report was refused: {c.refused}</p>}
      {!!c.skew && <p class="alert waiting">The clock of this cluster differs from the hub's by {duration(Math.abs(c.skew) * 1000)}.</p>}
      {!c.linked && <p class="alert waiting">This cluster has no stream to the hub, so only its summary is shown.</p>}
      {s && (
        <div class="grid two">
          <div>
            <Problems of={c} />
            {!!s.changes?.length && (
              <Card title="Waits at gates">
                <ul class="plain rows">
                  {s.changes.map((change) => (
                    <One of={{ cluster: c, change }} />
                  ))}
                </ul>
                <More n={s.omitted?.changes} what="change" />
              </Card>
            )}
          </div>
          <div>
            <Card title="Objects">
              <div class="pad">
                <Health counts={s.counts} />
              </div>
              <dl class="facts">
                {Object.entries(s.kinds ?? {}).map(([kind, counts]) => (
                  <>
                    <dt>
                      <span class="line">
                        <KindIcon kind={kind} /> {kind}
                      </span>
                    </dt>
                    <dd>
                      <Health counts={counts} />
                    </dd>
                  </>
                ))}
              </dl>
            </Card>
            <Card title="Revisions">
              {!s.revisions?.length && <Empty>It has no source yet.</Empty>}
              <ul class="plain rows">
                {s.revisions?.map((r) => (
                  <OneRevision of={r} cluster={c} />
                ))}
              </ul>
              <More n={s.omitted?.revisions} what="source" />
            </Card>
          </div>
        </div>
      )}
    </>
  );
}

function Problems({ of: c }: { of: Cluster }) {
  const problems = c.summary?.problems ?? [];
  return (
    <Card title="Problems" extra={<span class="quiet">first cause first</span>}>
      {problems.length === 0 && <Empty>Nothing fails.</Empty>}
      <ul class="plain rows">
        {problems.map((p) => (
          <li class={`bar-left ${p.state}`}>
            <div class="line">
              <InCluster of={c} to={objectPath(p.object)}>
                <strong class="long">{p.object}</strong>
              </InCluster>
              <Pill state={p.state} />
              <span class="end">
                <Ago at={p.since} />
              </span>
            </div>
            <p class="clamp">
              <Brief text={p.message} />
            </p>
            {!!p.affected && <p class="quiet">blocks {plural(p.affected, 'object')}</p>}
          </li>
        ))}
      </ul>
      <More n={c.summary?.omitted?.problems} what="problem" />
    </Card>
  );
}

function OneRevision({ of: r, cluster }: { of: Source; cluster: Cluster }) {
  return (
    <li>
      <div class="line">
        <InCluster of={cluster} to={objectPath(r.source)}>
          <span class="long">{r.source}</span>
        </InCluster>
        <span class="end">
          <Revision of={r.revision} />
        </span>
      </div>
      <div class="long">
        {r.subject}{' '}
        <span class="quiet">
          <Author of={r.author} /> <Ago at={r.committed ?? r.fetched} />
        </span>
      </div>
      <div class="quiet">
        {r.current} of {plural(r.objects, 'object')} at it
        {r.applied?.map((a) => (
          <>
            {' '}
            · {a.objects} at <Revision of={a.revision} />
          </>
        ))}
      </div>
    </li>
  );
}

function More({ n, what }: { n?: number; what: string }) {
  return n ? <p class="quiet pad">{plural(n, `more ${what}`)}: only in the cluster.</p> : null;
}
