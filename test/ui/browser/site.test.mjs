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
  await page.goto(`${world.address}/${path}`, { waitUntil: 'networkidle' });
  return page;
}

async function close(page) {
  assert.deepEqual(page.faults, []);
  await page.context().close();
}

test('every page is accessible, in light and dark', async () => {
  const page = await open('v1.1.0/', { colorScheme: 'light' });
  const problems = [];
  for (const path of world.pages) {
    await page.goto(`${world.address}/${path}`);
    await page.locator('#VPContent').first().waitFor();
    await checkAccessibility(page, path).catch((e) => problems.push(e.message));
    await page.emulateMedia({ colorScheme: 'dark' }); // only colors differ
    await page.locator('html.dark').waitFor();
    const { violations } = await page.evaluate(() =>
      window.axe.run(document, { runOnly: ['color-contrast'], resultTypes: ['violations'] }));
    problems.push(...violations.map((v) => `${path}, dark: ${v.help}: ${v.nodes[0].html}`));
    await page.emulateMedia({ colorScheme: 'light' });
  }
  assert.deepEqual(problems, []);
  await close(page);
});

test('the search finds a page', async () => {
  const page = await open('v1.1.0/get-started.html');
  await page.keyboard.press('/');
  await page.getByRole('searchbox').fill('rotate age key');
  await page.locator('.VPLocalSearchBox [role=option]').first().waitFor();
  await page.locator('.VPLocalSearchBox').getByRole('option', { name: /Secrets in git.*Rotate/ }).first().click();
  await page.getByRole('heading', { level: 1, name: 'Secrets in git' }).waitFor();
  assert.match(page.url(), /secrets\.html#rotate/);
  await close(page);
});

test('the theme that a reader chooses stays', async () => {
  const page = await open('v1.1.0/get-started.html', { colorScheme: 'light' });
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.getByRole('switch', { name: 'dark' }).first().click();
  await page.locator('html.dark').waitFor();
  const dark = await background();
  assert.notEqual(dark, light);
  await page.goto(`${world.address}/v1.1.0/gate.html`);
  assert.equal(await background(), dark);
  await close(page);
});

test('the switch leads to the same page of another version', async () => {
  const page = await open('index.html');
  await page.waitForURL(/\/v1\.1\.0\/$/); // the newest version
  await page.goto(`${world.address}/v1.1.0/design/gates.html`, { waitUntil: 'networkidle' });
  await page.getByLabel('Version').first().selectOption('v1.0.0');
  await page.waitForURL(/v1\.0\.0\/design\/gates\.html$/);
  await page.getByText('Older').waitFor();
  await close(page);
});

test('the side bar leads by task, and a page leads to its source', async () => {
  const page = await open('v1.1.0/gates-and-freezes.html');
  await page.locator('.VPSidebar').getByRole('link', { name: 'Gates and freezes' }).waitFor();
  const edit = page.getByRole('link', { name: 'Edit this page' });
  assert.match(await edit.getAttribute('href'), /edit\/main\/docs\/gates-and-freezes\.md$/);
  await close(page);
});

test('a small screen folds the navigation and needs no sideways scrolling', async () => {
  const page = await open('v1.1.0/get-started.html', { viewport: { width: 360, height: 740 } });
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
  assert.equal(await page.locator('.VPSidebar').evaluate((e) => e.getBoundingClientRect().right <= 0), true);
  await close(page);
});
