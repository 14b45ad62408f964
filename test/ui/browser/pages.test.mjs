// Every page: its content, accessibility in light and dark, HTML in names and messages, 360 px, keyboard, screenshots.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { checkAccessibility, close, eventually, launch, object, open, pages, visit, world } from './lib.mjs';

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

for (const scheme of ['light', 'dark']) {
  test(`every page is accessible in ${scheme}`, async () => {
    const page = await open(browser, { colorScheme: scheme });
    for (const p of pages) {
      await visit(page, p);
      await checkAccessibility(page, `${p.name}, ${scheme}`);
    }
    await close(page);
  });
}

for (const colorScheme of ['light', 'dark']) {
test(`every tab of an object is accessible in ${colorScheme} and shows its data`, async () => {
  const page = await open(browser, { colorScheme });
  await page.goto(new URL(object('Kustomization/shop/web'), world.address).href);
  for (const [tab, has] of [
    ['Events', 'ReconciliationSucceeded'],
    ['Resources', 'Pod'],
    ['History', 'main@sha1:'],
    ['Diff', 'as in git'],
    ['YAML', 'apiVersion: kustomize.toolkit.fluxcd.io/v1'],
    ['Conditions', 'Ready: True'],
  ]) {
    await page.getByRole('tab', { name: tab }).click();
    await page.getByRole('tabpanel').getByText(has).first().waitFor();
    await checkAccessibility(page, tab);
  }
  await close(page);
});
}

test('HTML in messages and commits is shown as text', async () => {
  const page = await open(browser);
  for (const path of [object('Kustomization/shop/broken'), '/', '/objects', '/why?q=broken', '/graph']) {
    await page.goto(new URL(path, world.address).href);
    await page.getByText('<img src=x onerror=').first().waitFor({ state: 'attached' });
    assert.equal(await page.locator('main img').count(), 0, `an image of a message is on ${path}`);
  }
  await page.goto(new URL('/changes', world.address).href);
  await page.getByText('<script>window.hacked=1</script> Sell').first().waitFor();
  assert.equal(await page.locator('main script').count(), 0);
  await close(page);
});

test('what soaks and what was reverted is shown, with what to do', async () => {
  const page = await open(browser);
  const go = (path) => page.goto(new URL(path, world.address).href);
  await go('/why?q=cart-production');
  const soaks = page.getByRole('listitem').filter({ hasText: 'blocked' });
  await soaks.getByText(/soaks until/).waitFor();
  await soaks.getByText(/Until .*from now/).waitFor();
  await soaks.getByText('goes on by itself if Kustomization/shop/cart-staging stays Ready').waitFor();

  await go('/why?q=search');
  const reverted = page.getByRole('listitem').filter({ hasText: 'blocked' });
  await reverted.getByText(/was reverted to main@sha1:.* because .*Deployment/).waitFor();
  await reverted.getByText('What to do: commit a fix').waitFor();

  await go(object('Kustomization/shop/search'));
  await page.getByText('Went back').waitFor();
  await page.getByText('Let through').waitFor();
  await go(object('Gate/shop/watched'));
  await page.getByText('failed').first().waitFor();
  await page.getByText('goes back to what was healthy before').waitFor();
  await page.getByRole('link', { name: 'Kustomization/shop/search' }).first().waitFor();
  await close(page);
});

test('the page of a gate shows what waits with its changes and risk, as the inbox does', async () => {
  const page = await open(browser);
  for (const path of [object('Gate/shop/release'), '/gates']) {
    await page.goto(new URL(path, world.address).href);
    const gate = page.locator('section.gate', { hasText: 'ConfigMap/shop/checkout' });
    await gate.getByText('ConfigMap/shop/checkout created').waitFor();
    await gate.getByText('low risk').waitFor();
    await gate.getByText('gate \'shop/release\' is closed').waitFor();
  }
  await page.goto(new URL(object('Gate/shop/release'), world.address).href);
  await page.getByText('Approve is off: this gate requires no approvals: open it.').waitFor();
  assert.ok(await page.getByRole('button', { name: 'Approve' }).isDisabled(), 'an approval would change nothing');
  await page.goto(new URL(object('Gate/shop/audit'), world.address).href);
  await page.getByText('ConfigMap/shop/report created').waitFor();
  await page.getByRole('button', { name: 'Approve' }).click();
  await page.getByRole('dialog').getByText('About 1 change that you were shown.').waitFor();
  assert.match(await page.getByLabel('Only this revision').inputValue(), /^main@sha1:[0-9a-f]{40}$/);
  await page.keyboard.press('Escape');
  await close(page);
});

test('the calendar shows the windows of a gate', async () => {
  const page = await open(browser);
  await page.goto(new URL('/gates', world.address).href);
  await page.getByRole('button', { name: 'Show the calendar' }).click();
  const gate = page.locator('section', { has: page.getByRole('heading', { name: 'Gate/shop/nights' }) });
  await gate.getByText('periods').click();
  await gate.getByRole('listitem').filter({ hasText: ': open' }).first().waitFor();
  assert.ok((await gate.locator('rect.open').count()) >= 13, 'a gate that opens each night has 14 windows in 14 days');
  await close(page);
});

test('the graph folds, unfolds, and shows the objects that were made', async () => {
  const page = await open(browser);
  await page.goto(new URL(`/graph?root=${encodeURIComponent('GitRepository/shop/app')}`, world.address).href);
  const picture = page.getByRole('group', { name: 'Picture of the graph' });
  const node = (id) => picture.locator('.node', { hasText: id }).first(); // by its title, which starts with the ID
  await node('Kustomization/shop/checkout:').waitFor();
  await picture.getByRole('button', { name: 'what follows GitRepository/shop/app' }).focus();
  await page.keyboard.press('Enter');
  await node('Kustomization/shop/checkout:').waitFor({ state: 'detached' });
  await node('GitRepository/shop/app:').waitFor();
  await page.getByRole('button', { name: 'Unfold all' }).click();
  await node('Kustomization/shop/checkout:').waitFor();
  await node('Gate/shop/release: closed').waitFor(); // a door in front of what it holds
  await picture.getByRole('button', { name: 'objects of Kustomization/shop/web' }).click();
  await node('Deployment/shop/web:').waitFor();
  await node('Pod/shop/web').waitFor();
  await checkAccessibility(page, 'graph with objects');
  await picture.getByRole('button', { name: 'objects of Kustomization/shop/web' }).click();
  await node('Pod/shop/web').waitFor({ state: 'detached' });
  await close(page);
});

for (const [width, height] of [
  [360, 740],
  [3840, 2160],
]) {
  test(`every page fits ${width} px`, async () => {
    const page = await open(browser, { viewport: { width, height } });
    await checkWidth(page, width);
    await close(page);
  });
}

// checkWidth fails if something of a page is wider than the window.
async function checkWidth(page, width) {
  for (const p of pages) {
    await visit(page, p);
    const wide = await page.evaluate((width) => {
      if (document.documentElement.scrollWidth <= width) {
        return [];
      }
      const all = [...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > width);
      return all.map((e) => e.outerHTML.slice(0, 200));
    }, width);
    assert.deepEqual(wide, [], `${p.name} is wider than ${width} px`);
  }
}

test('keyboard: skip link, pages, tabs, picture and dialog', async () => {
  const page = await open(browser);
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent.trim()), 'Skip to the content');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
  await page.getByRole('link', { name: 'Gates', exact: true }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 1, name: 'Gates' }).waitFor();

  await page.goto(new URL(object('Kustomization/shop/web'), world.address).href);
  await page.getByRole('tab', { name: 'Resources' }).focus();
  await page.keyboard.press('ArrowRight');
  await page.getByRole('tabpanel').getByText('as in git').first().waitFor();
  await page.getByRole('button', { name: 'Suspend' }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').waitFor();
  await checkAccessibility(page, 'dialog');
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });

  await page.goto(new URL('/graph', world.address).href);
  const picture = page.getByRole('group', { name: 'Picture of the graph' });
  await picture.focus();
  const place = () => picture.locator('.canvas').evaluate((e) => e.style.transform);
  const first = await eventually(place);
  await page.keyboard.press('ArrowLeft');
  await eventually(async () => assert.notEqual(await place(), first));
  const moved = await place();
  await page.keyboard.press('+');
  await eventually(async () => assert.notEqual(await place(), moved));
  await close(page);
});
