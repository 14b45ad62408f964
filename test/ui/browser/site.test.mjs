// The site that `make docs` builds: accessibility of every page in light and dark, search, themes and versions.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { checkAccessibility, launch, world } from './lib.mjs';

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

// open returns a page of the site. The test fails if a request leaves the server, or if the page reports an error.
async function open(path, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  page.faults = [];
  page.on('pageerror', (e) => page.faults.push(String(e)));
  page.on('request', (r) => {
    if (new URL(r.url()).origin !== world.address) page.faults.push(`request to another host: ${r.url()}`);
  });
  await page.goto(`${world.address}/${path}`);
  return page;
}

async function close(page) {
  assert.deepEqual(page.faults, []);
  await page.context().close();
}

test('every page is accessible, in light and dark', async () => {
  const page = await open('v1.1.0/index.html', { colorScheme: 'light' });
  const problems = [];
  for (const path of world.pages) {
    await page.goto(`${world.address}/${path}`);
    await checkAccessibility(page, path).catch((e) => problems.push(e.message));
    await page.emulateMedia({ colorScheme: 'dark' }); // only colors differ
    const { violations } = await page.evaluate(() =>
      window.axe.run(document, { runOnly: ['color-contrast'], resultTypes: ['violations'] }));
    problems.push(...violations.map((v) => `${path}, dark: ${v.help}: ${v.nodes[0].html}`));
    await page.emulateMedia({ colorScheme: 'light' });
  }
  assert.deepEqual(problems, []);
  await close(page);
});

test('the search finds a page, marks the words, and is accessible', async () => {
  const page = await open('v1.1.0/index.html');
  await page.keyboard.press('/');
  await page.keyboard.type('rotate age key');
  const result = page.getByRole('link', { name: 'Secrets in git: Rotate' });
  await result.waitFor();
  await page.locator('mark').first().waitFor();
  await checkAccessibility(page, 'search');
  await result.click();
  await page.getByRole('heading', { level: 1, name: 'Secrets in git' }).waitFor();
  assert.match(page.url(), /secrets\.html#rotate$/);
  await close(page);
});

test('the search loads its index once, and shows what was typed last', async () => {
  const page = await open('v1.1.0/index.html');
  let release;
  const typed = new Promise((resolve) => (release = resolve));
  await page.route('**/search.js', (route) => typed.then(() => route.continue()));
  await page.keyboard.press('/');
  await page.keyboard.type('rotate age key');
  assert.equal(await page.locator('script[src$="search.js"]').count(), 1); // several are run in any order
  release();
  await page.getByRole('link', { name: 'Secrets in git: Rotate' }).waitFor();
  await close(page);
});

test('the theme that a reader chooses stays', async () => {
  const page = await open('v1.1.0/index.html', { colorScheme: 'light' });
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.getByRole('button', { name: 'Dark' }).click();
  const dark = await background();
  assert.notEqual(dark, light);
  await page.goto(`${world.address}/v1.1.0/gate.html`);
  assert.equal(await background(), dark);
  await close(page);
});

test('the switch leads to the same page of another version', async () => {
  const page = await open('index.html');
  await page.waitForURL(/\/v1\.1\.0\/(index\.html)?$/); // the newest version
  await page.goto(`${world.address}/v1.1.0/design/gates.html`);
  await page.getByLabel('Version').selectOption('v1.0.0');
  await page.waitForURL(/v1\.0\.0\/design\/gates\.html$/);
  await page.getByText('Sluice v1.0.0').first().waitFor();
  await close(page);
});

test('a small screen folds the navigation and needs no sideways scrolling', async () => {
  const page = await open('v1.1.0/get-started.html', { viewport: { width: 360, height: 740 } });
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
  assert.equal(await page.locator('#menu').getAttribute('open'), null);
  await close(page);
});
