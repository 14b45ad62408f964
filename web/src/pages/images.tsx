import { useState } from 'preact/hooks';
import { get, ImagePage, Page, release, WorkloadImage } from '../api';
import { useData, useTitle } from '../hooks';
import { Card, Dialog, Empty, Heading, Loading, ObjectLink, objectPath, Pill, Problem } from '../parts';
import { go, Place, setQuery } from '../router';

const kinds = 'kind=ImagePolicy&kind=ImageRepository&kind=ImageUpdateAutomation&kind=ImageUpdateJob';

// Images shows which images run, what is newer by policy, and asks for releases.
export function Images({ place }: { place: Place }) {
  useTitle('Images');
  const query = place.query.toString();
  // Workloads are read from the cluster for each answer, so only what decides on images reads them again.
  const { data, error, reload } = useData<ImagePage>('images?' + query, (c) => c.id.startsWith('ImagePolicy/'));
  return (
    <>
      <Heading title="Images" sub="what runs, and what is newer by policy" />
      <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
        <label>
          Search{' '}
          <input
            type="search"
            value={place.query.get('q') ?? ''}
            onInput={(e) => setQuery(place, { q: e.currentTarget.value })}
            placeholder="image, workload, policy"
          />
        </label>
        <label>
          Namespace{' '}
          <input
            value={place.query.get('namespace') ?? ''}
            onChange={(e) => setQuery(place, { namespace: e.currentTarget.value })}
          />
        </label>
        <label>
          <input
            type="checkbox"
            checked={place.query.get('newer') === 'true'}
            onChange={(e) => setQuery(place, { newer: e.currentTarget.checked ? 'true' : '' })}
          />{' '}
          Only outdated
        </label>
        <button type="button" onClick={reload}>
          Read again
        </button>
      </form>
      <Problem error={error} />
      {data ? <Running key={query} first={data} query={place.query} /> : <Loading error={error} />}
      <Objects />
    </>
  );
}

// Running is the table of what workloads run.
function Running({ first, query }: { first: ImagePage; query: URLSearchParams }) {
  const [more, setMore] = useState<ImagePage[]>([]);
  const [error, setError] = useState<Error>();
  const [asked, setAsked] = useState<WorkloadImage>();
  const pages = [first, ...more];
  const next = pages[pages.length - 1]?.next;
  const load = async () => {
    const q = new URLSearchParams(query);
    q.set('after', next ?? '');
    try {
      setMore([...more, await get<ImagePage>('images?' + q.toString())]);
    } catch (e) {
      setError(e as Error);
    }
  };
  return (
    <>
      <p class="quiet" role="status">
        {first.total} {first.total === 1 ? 'container' : 'containers'}, {first.newer} outdated
      </p>
      {first.notes.map((n) => (
        <p class="alert">{n}</p>
      ))}
      <div class="scroll card" tabIndex={0} role="region" aria-label="Table of images">
        <table class="cards">
          <thead>
            <tr>
              <th>Workload</th>
              <th>Container</th>
              <th>Image</th>
              <th>Runs</th>
              <th>By policy</th>
              <th>Policy</th>
              <th>Release</th>
            </tr>
          </thead>
          <tbody>
            {pages
              .flatMap((p) => p.images)
              .map((i) => (
                <tr key={i.workload + i.container + i.policy}>
                  <td>{i.workload}</td>
                  <td>{i.container}</td>
                  <td>{i.image}</td>
                  <td>{i.runs}</td>
                  <td>{i.isNewer ? <Pill state="waiting">{i.selected}</Pill> : i.policy && <Pill state="ready">current</Pill>}</td>
                  <td>{i.policy && <ObjectLink id={i.policy} />}</td>
                  <td>
                    <button class="small" aria-label={`Release for ${i.workload} ${i.container}`} onClick={() => setAsked(i)}>
                      Release…
                    </button>
                  </td>
                </tr>
              ))}
          </tbody>
        </table>
      </div>
      <Problem error={error} />
      {next && <button onClick={() => void load()}>Show more</button>}
      {asked && <Ask image={asked} automations={first.automations} onClose={() => setAsked(undefined)} />}
    </>
  );
}

// Ask asks for a release of one workload.
function Ask(props: { image: WorkloadImage; automations: string[]; onClose: () => void }) {
  const { image, automations } = props;
  const [error, setError] = useState<Error>();
  const near = `/${(image.policy ?? image.workload).split('/')[1]}/`;
  const submit = async (e: SubmitEvent) => {
    e.preventDefault();
    const data = new FormData(e.currentTarget as HTMLFormElement);
    const text = (name: string) => String(data.get(name) ?? '').trim();
    try {
      const id = await release({
        automation: text('automation'),
        workloads: [image.workload],
        container: image.container,
        images: [text('image')],
        author: text('author'),
        reason: text('reason'),
        dryRun: data.get('dryRun') === 'on',
      });
      go(objectPath(id));
    } catch (failed) {
      setError(failed as Error);
    }
  };
  return (
    <Dialog title={`Release an image for ${image.workload}`} onClose={props.onClose}>
      <form onSubmit={(e) => void submit(e)} class="ask">
        <p class="quiet">
          Commits the image to git once, by an ImageUpdateJob. The workload is looked up in the files by kind and name, and
          gates of the automation apply.
        </p>
        <label>
          Image
          <input name="image" required value={image.release ?? `${image.image}:`} autoFocus />
        </label>
        <label>
          Commit as
          <select name="automation" required>
            {automations.map((a) => (
              <option value={a} selected={a.includes(near)}>
                {a}
              </option>
            ))}
          </select>
        </label>
        <label>
          Author as Name &lt;email&gt; (optional)
          <input name="author" maxLength={256} />
        </label>
        <label>
          Reason (optional)
          <input name="reason" maxLength={500} />
        </label>
        <label>
          <input type="checkbox" name="dryRun" /> Only show what would change
        </label>
        {automations.length === 0 && (
          <p class="alert">There is no ImageUpdateAutomation that you may see: it is needed to commit.</p>
        )}
        <Problem error={error} />
        <div class="buttons">
          <button type="submit" class="primary" disabled={automations.length === 0}>
            Release
          </button>
          <button type="button" onClick={props.onClose}>
            Cancel
          </button>
        </div>
      </form>
    </Dialog>
  );
}

// Objects is the table of what scans, selects and commits images.
function Objects() {
  const { data, error } = useData<Page>(`items?${kinds}&limit=1000`, (c) => c.id.startsWith('Image'));
  if (!data) {
    return <Loading error={error} />;
  }
  return (
    <Card title="Policies, repositories and releases">
      <Problem error={error} />
      {data.items.length === 0 && <Empty>There are no image policies.</Empty>}
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of policies, repositories and releases">
        <table class="cards">
          <thead>
            <tr>
              <th>State</th>
              <th>Object</th>
              <th>Image</th>
              <th>Selected tag</th>
              <th>Message</th>
            </tr>
          </thead>
          <tbody>
            {data.items.map((i) => (
              <tr key={i.id}>
                <td>
                  <Pill state={i.state} />
                </td>
                <td>
                  <ObjectLink id={i.id} />
                </td>
                <td>{i.image}</td>
                <td>{i.revision}</td>
                <td class="message">{i.message}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}
