// Many objects: the short form of what TestScale measures with 10,000. It is the last test, as others list all objects.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { close, eventually, launch, open, step, world } from './lib.mjs';

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

test('many objects are listed in pages, counted, found, and changed while they are shown', async () => {
  const page = await open(browser);
  const go = (path) => page.goto(new URL(path, world.address).href);
  await go('/objects?kind=Kustomization');
  const count = await step('create-many');
  await page.getByText(`${Number(count).toLocaleString('en')} objects`).first().waitFor(); // from the stream
  assert.ok((await page.getByRole('row').count()) <= 110, 'all objects are in the page');
  await go('/objects?kind=Kustomization');
  await page.getByRole('button', { name: 'Show more' }).click();
  await page.locator('tr[data-index]').first().waitFor(); // only rows in sight exist from now on
  await eventually(async () => {
    await page.evaluate(() => window.scrollTo(0, document.body.scrollHeight));
    assert.equal(await page.locator('table').getAttribute('aria-rowcount'), String(Number(count) + 1));
    assert.ok((await page.locator('tr[data-index]').count()) <= 110, 'rows out of sight exist');
    assert.ok(await page.locator(`tr[data-index="${Number(count) - 1}"]`).isVisible());
  });
  await go('/objects?q=app-999');
  await page.getByRole('link', { name: 'app-999', exact: true }).waitFor();
  await go('/');
  await page.getByRole('heading', { name: 'By namespace' }).waitFor();
  const overview = await (await page.request.get(new URL('/api/v1/overview', world.address).href)).json();
  assert.ok(overview.total > Number(count) && overview.counts.suspended >= 1000, JSON.stringify(overview.counts));
  await go('/graph?namespace=scale-0');
  await page.locator('.picture .node').first().waitFor();
  await go('/objects?q=scale-0%2Fapp-0');
  await page.getByText('main@sha1:01234567').first().waitFor();
  await step('touch-many');
  await page.getByText('v2@sha256:22222222').first().waitFor();
  await go('/changes');
  await page.getByText(/v2@sha256:22222222/).first().waitFor();
  const { liveCount, live } = await eventually(async () => {
    const answer = await (await page.request.get(new URL('/api/v1/changes?q=app-999', world.address).href)).json();
    assert.equal(answer.changes.length, 1);
    return answer.changes[0];
  });
  assert.ok(liveCount >= 999 && live.length <= 50, `${live.length} of ${liveCount} objects are sent`);
  await close(page);
});
