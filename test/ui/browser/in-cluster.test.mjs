// The UI in the cluster: login by OIDC, and what a tenant receives who may see one namespace.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { checkAccessibility, eventually, launch, object, step, world } from './lib.mjs';

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const at = (path) => new URL(path, world.inCluster).href;

// loggedOut returns a page at an address of the UI, in a browser without a session.
async function loggedOut(path) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  await page.goto(at(path));
  await page.getByRole('heading', { level: 1, name: 'Log in' }).waitFor();
  return page;
}

// enter logs in at the provider.
async function enter(page, user, password) {
  await page.getByRole('link', { name: 'Log in with your organization' }).click();
  await page.locator('input[name=username]').fill(user);
  await page.locator('input[name=password]').fill(password);
  await page.locator('button[type=submit]').click();
}

// as returns a page at an address, of a user who logged in.
async function as(user, path) {
  const page = await loggedOut(path);
  await enter(page, user, world.password);
  await page.getByTitle(user).waitFor();
  return page;
}

test('login by OIDC leads back to the page that was asked for, and a logout ends the session', async () => {
  const page = await loggedOut('/gates');
  await checkAccessibility(page, 'login');
  await enter(page, 'alice', 'guess');
  await page.locator('input[name=password]').waitFor(); // the provider asks again
  assert.notEqual(new URL(page.url()).origin, new URL(world.inCluster).origin);
  await page.goto(at('/gates'));
  await enter(page, 'alice', world.password);
  await page.getByRole('heading', { level: 1, name: 'Gates' }).waitFor();
  await page.getByTitle('alice').waitFor();
  assert.equal(await page.evaluate(() => document.cookie), '', 'a script can read the session');
  await page.reload();
  await page.getByRole('heading', { level: 1, name: 'Gates' }).waitFor();
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByRole('heading', { level: 1, name: 'Log in' }).waitFor();
  await page.context().close();
});

test('a forged session gets the login page', async () => {
  const page = await as('alice', '/');
  const cookies = await page.context().cookies();
  const session = cookies.find((c) => c.name.includes('session'));
  await page.context().addCookies([{ ...session, value: session.value.slice(0, -8) + 'AAAAAAAA' }]);
  await page.reload();
  await page.getByRole('heading', { level: 1, name: 'Log in' }).waitFor();
  await page.context().close();
});

test('a tenant receives nothing of other namespaces: pages, counts, graph and stream', async () => {
  const page = await as('alice', '/');
  const received = [];
  page.on('response', async (r) => {
    if (r.url().includes('/api/v1/') && !r.url().endsWith('/stream')) {
      received.push(await r.text().catch(() => ''));
    }
  });
  for (const [path, has] of [
    ['/', 'legacy'],
    ['/objects', 'checkout'],
    ['/graph', 'checkout'],
    ['/graph?as=table', 'source: GitRepository/shop/app'],
    ['/why?q=checkout', 'What to do'],
    ['/gates', 'waits at a gate'],
    ['/changes', 'Fetched by'],
    ['/images', 'Deployment/shop/web'],
    [object('Kustomization/shop/web'), 'Applied revision'],
  ]) {
    await page.goto(at(path));
    await page.getByText(has).first().waitFor({ state: 'attached' });
    assert.doesNotMatch(await page.locator('main').innerText(), /payments|ledger/, path);
  }
  await page.goto(at('/objects?q=payments'));
  await page.getByText('0 objects').waitFor();
  await page.goto(at(object('Kustomization/payments/ledger')));
  await page.getByRole('alert').getByText('forbidden').waitFor();
  await page.goto(at('/'));
  const total = (await (await page.request.get(at('/api/v1/overview'))).json()).total;
  const items = await (await page.request.get(at('/api/v1/items?limit=1000'))).json();
  assert.equal(items.total, total);
  assert.deepEqual([...new Set(items.items.map((i) => i.namespace))], ['shop']);
  assert.equal(received.filter((text) => /"(id|namespace)":"[^"]*(payments|ledger)/.test(text)).length, 0);

  await page.evaluate(() => {
    window.stream = '';
    new EventSource('/api/v1/stream').addEventListener('changes', (e) => (window.stream += e.data));
  });
  await page.waitForResponse((r) => r.url().endsWith('/stream')).catch(() => {});
  await step('create-hidden');
  await step('create-visible');
  await eventually(async () => assert.match(await page.evaluate(() => window.stream), /Gate\/shop\/visible/));
  assert.doesNotMatch(await page.evaluate(() => window.stream), /payments/);
  await page.context().close();
});

test('a tenant cannot do what RBAC refuses, and is told why', async () => {
  const page = await as('alice', object('Kustomization/shop/web'));
  await page.getByRole('button', { name: 'Reconcile' }).click();
  await page.getByRole('alert').getByText('Ask an administrator').waitFor();
  await page.context().close();
});

test('a session that ends while a dialog is open: what was typed stays, and is sent after a login', async () => {
  const page = await as('alice', object('Kustomization/shop/web'));
  await page.getByRole('button', { name: 'Suspend' }).click();
  await page.getByLabel('Reason').fill('an incident');
  await page.context().clearCookies();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Suspend' }).click();
  await dialog.getByRole('alert').getByText('You are not logged in').waitFor();
  const other = page.context().waitForEvent('page');
  await dialog.getByRole('link', { name: 'Log in in another tab' }).click();
  const tab = await other;
  await enter(tab, 'alice', world.password);
  await tab.getByTitle('alice').waitFor();
  await page.bringToFront();
  await page.evaluate(() => window.dispatchEvent(new Event('focus')));
  assert.equal(await page.getByLabel('Reason').inputValue(), 'an incident');
  await eventually(async () => {
    await dialog.getByRole('button', { name: 'Suspend' }).click();
    await dialog.getByRole('alert').getByText('Ask an administrator').waitFor({ timeout: 2000 });
  });
  await page.context().close();
});

test('a user without rights sees no object', async () => {
  const page = await as('bob', '/objects');
  await page.getByText('0 objects').waitFor();
  assert.doesNotMatch(await page.locator('main').innerText(), /shop|payments/);
  await page.context().close();
});
