import { ExternalLink, GitPullRequest } from 'lucide-preact';
import { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { useTitle } from '../hooks';
import { Icon } from '../icons';
import { Ago, Card, Heading, Loading, Pill, plural, Problem, Revision } from '../parts';
import { Link } from '../router';
import { Risk } from './pending';
import { Found, matches, reviewState, Summary, useReviews } from './reviews';

interface Finding {
  rule: string;
  level: string;
  message: string;
}

interface Changed {
  action: string;
  kind: string;
  namespace?: string;
  name: string;
  risk: string;
  diff?: string;
  findings?: Finding[];
}

interface Owner {
  kind: string;
  namespace: string;
  name: string;
  cluster?: string;
  objects?: Changed[];
  findings?: Finding[];
  risk: string;
  note?: string;
  error?: string;
}

interface Asking {
  kind: string;
  namespace: string;
  name: string;
  gates?: { gate: string; passes: boolean; rule?: string; message?: string; approvals?: { required: number; groups?: string[]; users?: string[] } }[];
}

interface Detail extends Summary {
  preview?: { owners: Owner[]; files: string[]; notes?: string[] };
  gates?: Asking[];
  images?: { name: string; exists?: boolean; why?: string; of: string[] }[];
  blast: { applications?: string[]; clusters?: string[]; namespaces?: string[] };
  schema?: { object: string; message: string }[];
  places?: Record<string, string>;
  pages?: Record<string, string>;
}

const signs: Record<string, string> = { created: '+', configured: '~', recreated: '±', deleted: '-', hidden: '?', unchanged: '=' };

// Review shows one pull request: what it would do, by application.
export function Review({ repository, number }: { repository: string; number: string }) {
  useTitle(`Review ${repository} #${number}`);
  const { data, error } = useReviews<Detail>(`reviews/${encodeURIComponent(repository)}/${encodeURIComponent(number)}`);
  if (!data) {
    return (
      <>
        <Heading title={`${repository} #${number}`} />
        <Loading error={error} />
      </>
    );
  }
  return (
    <>
      <Heading
        title={data.title || `Pull request ${number}`}
        icon={<Icon of={GitPullRequest} />}
        sub={
          <>
            {repository} #{number} · {data.author} · {data.branch} → {data.base} <Revision of={data.commit} /> <Ago at={data.at} />
          </>
        }
      >
        <span class="end">
          <Pill state={reviewState(data)}>{data.state === 'done' ? (data.passes ? 'passes' : 'fails') : data.state}</Pill>{' '}
          <Out to={data.url}>Pull request</Out>
        </span>
      </Heading>
      <Problem error={error} />
      {data.error && (
        <p role="alert" class="alert">
          {data.error}
        </p>
      )}
      {data.sandboxed && (
        <p class="alert waiting">The author is not allowed: rendered without the cluster, without secrets and without credentials.</p>
      )}
      <p role="status">
        {data.text} <Risk level={data.risk} /> <Found of={data} />
      </p>
      <Facts of={data} />
      <Notes all={data.preview?.notes ?? []} />
      {data.preview && <Diffs of={data} owners={data.preview.owners} />}
      <Files of={data} />
    </>
  );
}

// Out is a link to the git host. Its address comes from the server, which makes it of the configured repository.
function Out({ to, children }: { to?: string; children: ComponentChildren }) {
  return to && /^https?:\/\//.test(to) ? (
    <a href={to} rel="noreferrer" target="_blank">
      {children} <Icon of={ExternalLink} size={12} />
    </a>
  ) : (
    <>{children}</>
  );
}

// Facts are what the change reaches, and what is wrong with it.
function Facts({ of: d }: { of: Detail }) {
  const held = (d.gates ?? []).flatMap((o) => (o.gates ?? []).filter((g) => !g.passes).map((g) => ({ o, g })));
  const images = (d.images ?? []).filter((i) => i.exists !== true);
  return (
    <div class="grid">
      <Card title="Reaches">
        <dl class="facts pad">
          <Names title="Applications" all={d.blast.applications} />
          <Names title="Clusters" all={d.blast.clusters} />
          <Names title="Namespaces" all={d.blast.namespaces} />
        </dl>
      </Card>
      {held.length > 0 && (
        <Card title="Gates that would hold it">
          <ul class="plain rows">
            {held.map(({ o, g }) => (
              <li>
                <p>
                  <Link to={`/object/Gate/${g.gate}`}>{g.gate}</Link> holds {o.kind}/{o.namespace}/{o.name}: {needs(g)}
                </p>
              </li>
            ))}
          </ul>
        </Card>
      )}
      {images.length > 0 && (
        <Card title="Images">
          <ul class="plain rows">
            {images.map((i) => (
              <li title={i.of.join(', ')}>
                <code>{i.name}</code> {i.exists === false ? <Pill state="failed">does not exist</Pill> : <span class="quiet">not known: {i.why}</span>}
              </li>
            ))}
          </ul>
        </Card>
      )}
      {(d.schema ?? []).length > 0 && (
        <Card title="Schema errors">
          <ul class="plain rows">
            {d.schema?.map((p) => (
              <li>
                <code>{p.object}</code> {p.message}
              </li>
            ))}
          </ul>
        </Card>
      )}
    </div>
  );
}

function needs(g: NonNullable<Asking['gates']>[number]): string {
  if (!g.approvals) {
    return g.message ?? g.rule ?? 'closed';
  }
  const from = [...(g.approvals.groups ?? []).map((n) => 'group ' + n), ...(g.approvals.users ?? [])].join(' or ');
  return `needs ${plural(g.approvals.required, 'approval')}${from ? ' of ' + from : ''}`;
}

const maxNames = 20;

function Names({ title, all }: { title: string; all?: string[] }) {
  return (
    <>
      <dt>{title}</dt>
      <dd title={all?.join('\n')}>
        {all?.length ?? 0}
        {all?.length ? `: ${all.slice(0, maxNames).join(', ')}${all.length > maxNames ? ', …' : ''}` : ''}
      </dd>
    </>
  );
}

function Notes({ all }: { all: string[] }) {
  return all.length === 0 ? null : (
    <details open={all.length <= 3}>
      <summary>{plural(all.length, 'note')}</summary>
      <ul class="plain quiet">
        {all.map((n) => (
          <li>{n}</li>
        ))}
      </ul>
    </details>
  );
}

// Diffs are the changed objects by application. Their diffs are folded, and rendered when they are opened.
function Diffs({ of: d, owners }: { of: Detail; owners: Owner[] }) {
  const [q, setQ] = useState('');
  const [open, setOpen] = useState<Set<string>>(new Set());
  const keyOf = (o: Owner, c: Changed) => [o.kind, o.namespace, o.name, c.kind, c.namespace, c.name].join('/');
  const shown = owners
    .map((o) => ({ o, objects: (o.objects ?? []).filter((c) => matches([o.name, objectName(c), c.action, c.risk, c.diff].join(' '), q)) }))
    .filter(({ o, objects }) => objects.length > 0 || matches([o.kind, o.namespace, o.name, o.note, o.error].join(' '), q));
  const all = shown.flatMap(({ o, objects }) => objects.map((c) => keyOf(o, c)));
  const toggle = (key: string, now: boolean) => {
    if (open.has(key) !== now) {
      const next = new Set(open);
      if (now) {
        next.add(key);
      } else {
        next.delete(key);
      }
      setOpen(next);
    }
  };
  return (
    <>
      <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
        <label>
          <span class="visually-hidden">Search in the changes</span>
          <input class="wide" type="search" maxLength={500} value={q} onInput={(e) => setQ(e.currentTarget.value)} placeholder="application, object, text of a diff" />
        </label>
        <button type="button" onClick={() => setOpen(new Set(all))}>
          Expand all
        </button>
        <button type="button" onClick={() => setOpen(new Set())}>
          Collapse all
        </button>
        <span class="quiet" role="status">
          {plural(all.length, 'object')}
        </span>
      </form>
      {shown.map(({ o, objects }) => (
        <Card
          title={`${o.kind} ${o.namespace}/${o.name}`}
          extra={<Risk level={o.risk} />}
          end={<Place of={d} kind={o.kind} name={o.name} />}
        >
          <div class="pad">
            {o.cluster && <p class="quiet">in cluster {o.cluster}</p>}
            {o.note && <p class="quiet">{o.note}</p>}
            {o.error && (
              <p role="alert" class="alert">
                {o.error}
              </p>
            )}
            <Findings all={o.findings ?? []} />
            {objects.map((c) => {
              const key = keyOf(o, c);
              return (
                <details key={key} open={open.has(key)} onToggle={(e) => toggle(key, e.currentTarget.open)}>
                  <summary>
                    <code>{signs[c.action] ?? '?'}</code> {objectName(c)} <span class="quiet">{c.action}</span> <Risk level={c.risk} />{' '}
                    <Place of={d} kind={c.kind} name={c.name} />
                  </summary>
                  {open.has(key) && (
                    <>
                      <Findings all={c.findings ?? []} />
                      {c.diff ? <Diff text={c.diff} /> : <p class="quiet">There is no diff.</p>}
                    </>
                  )}
                </details>
              );
            })}
          </div>
        </Card>
      ))}
    </>
  );
}

function objectName(c: Changed): string {
  return [c.kind, c.namespace, c.name].filter(Boolean).join('/');
}

// Place links to the line that declares an object.
function Place({ of: d, kind, name }: { of: Detail; kind: string; name: string }) {
  const to = d.places?.[`${kind}/${name}`];
  return to ? <Out to={to}>declared here</Out> : null;
}

function Findings({ all }: { all: Finding[] }) {
  const shown = all.filter((f) => f.rule !== 'ordinary');
  return shown.length === 0 ? null : (
    <ul class="plain">
      {shown.map((f) => (
        <li>
          <Risk level={f.level} /> {f.message} <span class="quiet">({f.rule})</span>
        </li>
      ))}
    </ul>
  );
}

// Diff shows the lines of a diff in colour.
function Diff({ text }: { text: string }) {
  const ink: Record<string, string> = { '+': 'ink-ready', '-': 'ink-failed', '~': 'ink-waiting' };
  return (
    <pre>
      {text.split('\n').map((l) => (
        <span class={ink[l[0] ?? '']}>{l + '\n'}</span>
      ))}
    </pre>
  );
}

function Files({ of: d }: { of: Detail }) {
  const files = d.preview?.files ?? [];
  return files.length === 0 ? null : (
    <details>
      <summary>{plural(files.length, 'changed file')}</summary>
      <ul class="plain">
        {files.map((f) => (
          <li>
            <Out to={d.pages?.[f]}>{f}</Out>
          </li>
        ))}
      </ul>
    </details>
  );
}
