import { Page } from '../api';
import { useData, useTitle } from '../hooks';
import { Badge, Loading, ObjectLink, Problem } from '../parts';

const kinds = 'kind=ImagePolicy&kind=ImageRepository&kind=ImageUpdateAutomation&kind=ImageUpdateJob';

// Images shows which image each policy selects.
export function Images() {
  useTitle('Images');
  const { data, error } = useData<Page>(`items?${kinds}&limit=1000`, (c) => c.id.startsWith('Image'));
  if (!data) {
    return <Loading error={error} />;
  }
  return (
    <>
      <h1>Images</h1>
      <Problem error={error} />
      {data.items.length === 0 && <p class="quiet">There are no image policies.</p>}
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of images">
        <table>
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
                  <Badge state={i.state} />
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
    </>
  );
}
