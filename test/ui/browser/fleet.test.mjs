// The pages of a hub: all clusters, how far commits are, what waits at gates, and the UI of a cluster through its stream.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { checkAccessibility, close, launch, logInToHub, open, world } from './lib.mjs';

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const at = (path) => new URL(path, world.hub).href;

// hub returns a page that is logged in to the hub.
async function hub(options) {
  const page = await open(browser, options);
  await logInToHub(page);
  return page;
}

test('a wrong token is refused by the hub with a reason', async () => {
  const page = await open(browser);
  await page.goto(at('/'));
  await page.getByLabel('Token of a ServiceAccount').fill('wrong');
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('alert').getByText('the token is not valid').waitFor();
  await checkAccessibility(page, 'login to the hub');
  await close(page);
});

test('clusters are shown worst first, filtered, grouped and as a table', async () => {
  const page = await hub();
  const cells = page.locator('.fleet li');
  assert.equal(await cells.count(), 60);
  assert.match(await cells.first().innerText(), /failed/);
  await page.getByText(/\d+ clusters of \d+ behind main/).waitFor();
  await page.getByText('2 different').waitFor();
  await page.getByRole('button', { name: /^failed/ }).click();
  await page.getByRole('status').filter({ hasText: /^[1-9] clusters$/ }).waitFor();
  await page.getByRole('button', { name: /^failed/ }).click();
  await page.getByLabel('Group by').selectOption('stage');
  await page.getByRole('heading', { level: 2, name: /^staging/ }).waitFor();
  await page.getByRole('button', { name: 'Table' }).click();
  await page.getByRole('searchbox').fill('image pull failed');
  await page.getByText('<img src=x').first().waitFor();
  assert.equal(await page.locator('main img').count(), 0);
  await page.reload();
  await page.getByText('<img src=x').first().waitFor();
  await close(page);
});

test('one commit is shown by stage, and what waits leads to its cluster', async () => {
  const page = await hub();
  await page.getByRole('link', { name: 'Commits' }).click();
  const commit = page.locator('section', { hasText: 'Raise the limits of checkout' }).first();
  await commit.getByRole('progressbar', { name: /^production/ }).waitFor();
  const stages = await commit.getByRole('progressbar').evaluateAll((all) => all.map((e) => e.ariaLabel.split(':')[0]));
  assert.deepEqual(stages, ['staging', 'canary', 'production']);
  await page.getByRole('link', { name: 'Gates' }).click();
  await page.getByText(/\d+ changes wait/).waitFor();
  await page.getByText('0 of 1 approval').first().waitFor();
  await page.getByText('no stream: run').first().waitFor();
  await close(page);
});

test('a cluster without a stream shows its summary and says so', async () => {
  const page = await hub();
  await page.getByRole('link', { name: /^shop-004/ }).click();
  await page.getByText('has never reported').waitFor();
  await page.getByText('so only its summary is shown').waitFor();
  await page.goto(at('/summary/nothing'));
  await page.getByText('does not know cluster nothing').waitFor();
  await close(page);
});

test('the UI of a cluster is reached through its stream, with a login of its own', async () => {
  const page = await hub();
  await page.goto(at('/summary/bank-005'));
  await page.getByRole('link', { name: 'Open its UI' }).click();
  await page.getByLabel('Token of a ServiceAccount').fill(world.clusterToken);
  await page.getByRole('button', { name: 'Log in with the token' }).click();
  await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
  assert.equal(new URL(page.url()).pathname, '/clusters/bank-005/');
  await page.getByRole('link', { name: 'Gates', exact: true }).click();
  await page.getByRole('heading', { level: 1, name: 'Gates' }).waitFor();
  assert.equal(new URL(page.url()).pathname, '/clusters/bank-005/gates');
  await page.goto(at('/clusters/bank-005/object/Gate/shop/audit?ask=approve'));
  await page.getByRole('heading', { level: 1, name: 'audit' }).waitFor();
  await page.getByRole('dialog', { name: 'Approve in your name' }).waitFor();
  await page.keyboard.press('Escape');
  await page.getByText('Live', { exact: true }).waitFor();
  await page.getByRole('link', { name: 'All clusters' }).click();
  await page.getByRole('heading', { level: 1, name: 'Clusters' }).waitFor();
  await close(page);
});

for (const colorScheme of ['light', 'dark']) {
  test(`the pages of a hub are accessible in ${colorScheme}`, async () => {
    const page = await hub({ colorScheme });
    for (const path of ['/', '/?as=table&by=region', '/commits', '/gates', '/summary/edge-003', '/summary/bank-005']) {
      await page.goto(at(path));
      await page.locator('h1').waitFor();
      await checkAccessibility(page, path);
    }
    await close(page);
  });
}

test('the pages of a hub fit 390 px', async () => {
  const page = await hub({ viewport: { width: 390, height: 844 } });
  for (const path of ['/', '/?as=table', '/commits', '/gates', '/summary/edge-003']) {
    await page.goto(at(path));
    await page.locator('h1').waitFor();
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390, path);
  }
  await close(page);
});
