// Helpers of the browser tests. The Go test beside this folder starts the servers and this run; see ../ui_test.go.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

// world is where everything is; the Go test writes it.
export const world = JSON.parse(process.env.SLUICE_UI_WORLD ?? '{}');

// step asks the Go test to change the cluster, and returns its answer.
export async function step(name) {
  const response = await fetch(`${world.control}/${name}`, { method: 'POST' });
  const text = await response.text();
  assert.equal(response.status, 200, `step ${name}: ${text}`);
  return text;
}

// launch starts the browser. Its sandbox cannot be used by root in a container.
export function launch() {
  return chromium.launch({ executablePath: world.browser, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
}

// open returns a page that is logged in. The test fails if a script of an object ran, if a request left the server, or
// if the page reported an error.
export async function open(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  page.faults = [];
  page.on('pageerror', (e) => page.faults.push(String(e)));
  page.on('request', (r) => {
    if (![world.address, world.reviews, world.hub].some((a) => a && new URL(r.url()).origin === new URL(a).origin)) {
      page.faults.push(`request to another host: ${r.url()}`);
    }
  });
  await page.goto(await step('address'));
  await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
  return page;
}

// logInToHub opens the clusters of the hub.
export async function logInToHub(page) {
  await page.goto(world.hub);
  await page.getByLabel('Token of a ServiceAccount').fill(world.hubToken);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('heading', { level: 1, name: 'Clusters' }).waitFor();
}

// visit opens a page of the list below. Those of reviews are of another server, with a login of its own.
export async function visit(page, { path, has, isReview, isHub }) {
  if (isHub) {
    if (!page.knowsHub) {
      await logInToHub(page);
      page.knowsHub = true;
    }
    await page.goto(new URL(path, world.hub).href);
    await page.getByText(has).first().waitFor({ state: 'attached' });
    return;
  }
  if (isReview && !page.knowsReviews) {
    await page.goto(world.reviews);
    await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
    page.knowsReviews = true;
  }
  await page.goto(new URL(path, isReview ? world.reviews : world.address).href);
  await page.getByText(has).first().waitFor({ state: 'attached' });
}

// close checks what must hold on every page, and closes its context.
export async function close(page) {
  assert.equal(await page.evaluate(() => window.hacked), undefined, 'HTML of an object was run');
  assert.deepEqual(page.faults, []);
  await page.context().close();
}

// checkAccessibility fails on any violation that axe finds.
export async function checkAccessibility(page, name) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const found = violations.map((v) => `${v.id}: ${v.help}\n  ${v.nodes.map((n) => n.html).slice(0, 3).join('\n  ')}`);
  assert.deepEqual(found, [], `accessibility of ${name}`);
}

// eventually calls check until it does not throw, for at most 60 seconds.
export async function eventually(check) {
  const end = Date.now() + 60_000;
  for (;;) {
    try {
      return await check();
    } catch (e) {
      if (Date.now() > end) {
        throw e;
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

// object returns the address of the page of an object.
export const object = (id) => '/object/' + id.split('/').map(encodeURIComponent).join('/');

// pages lists every page, with a text that only its data can contain.
export const pages = [
  { name: 'overview', path: '/', has: 'legacy' },
  { name: 'graph', path: `/graph?root=${encodeURIComponent('GitRepository/shop/app')}`, has: 'checkout' },
  { name: 'groups', path: '/applications?by=source', has: 'GitRepository/shop/app' },
  { name: 'diff', path: object('Kustomization/shop/web') + '?tab=Diff', has: 'as in git' },
  { name: 'application-logs', path: object('Kustomization/shop/worker') + '?tab=Logs', has: 'order taken' },
  { name: 'graph-table', path: '/graph?as=table', has: 'source: GitRepository/shop/app' },
  { name: 'applications', path: '/applications', has: 'payments' },
  { name: 'objects', path: '/objects', has: 'payments' },
  { name: 'object', path: object('Kustomization/shop/web'), has: 'Applied revision' },
  { name: 'reverted', path: object('Kustomization/shop/search'), has: 'Went back' },
  { name: 'gate', path: object('Gate/shop/production'), has: 'soaks until' },
  { name: 'why', path: '/why?q=cart-production', has: 'What to do' },
  { name: 'why-reverted', path: '/why?q=search', has: 'was reverted to' },
  { name: 'gates', path: '/gates', has: 'waits at a gate' },
  { name: 'calendar', path: '/gates?as=calendar', has: 'Gate/shop/nights' },
  { name: 'changes', path: '/changes', has: 'Fetched by' },
  { name: 'images', path: '/images', has: '1.2.0' },
  { name: 'workloads', path: '/workloads', has: 'worker' },
  { name: 'logs', path: '/logs?kind=Deployment&namespace=shop&name=worker', has: 'card was refused' },
  { name: 'logs-choose', path: '/logs', has: 'worker' },
  { name: 'clusters', path: '/clusters', has: 'does not answer' },
  { name: 'explain', path: '/explain?q=SLU-1101', has: 'GitOperationFailed' },
  { name: 'reviews', path: '/reviews', has: 'app #1', isReview: true },
  { name: 'review', path: '/reviews/app/1', has: 'worker:2.5.0', isReview: true },
  { name: 'fleet', path: '/', has: 'edge-003', isHub: true },
  { name: 'fleet-table', path: '/?as=table&by=stage', has: 'edge-003', isHub: true },
  { name: 'fleet-commits', path: '/commits', has: 'Raise the limits', isHub: true },
  { name: 'fleet-gates', path: '/gates', has: 'Review in the cluster', isHub: true },
  { name: 'fleet-cluster', path: '/summary/edge-003', has: 'only its summary', isHub: true },
  { name: 'not-found', path: '/nothing', has: 'There is no such page' },
  { name: 'object-not-found', path: object('Kustomization/shop/nothing'), has: 'not found' },
];
