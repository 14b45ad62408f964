// What changes while a page is shown: objects, decisions, the API server and the server of the UI.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { checkAccessibility, close, eventually, launch, object, open, step, world } from './lib.mjs';

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const go = (page, path) => page.goto(new URL(path, world.address).href);

test('an object that is deleted while it is shown', async () => {
  const page = await open(browser);
  await step('create-doomed');
  await go(page, object('Gate/shop/doomed'));
  await page.getByRole('tab', { name: 'Conditions' }).waitFor();
  await step('delete-doomed');
  await page.getByRole('alert').getByText('not found').waitFor();
  await close(page);
});

test('suspend with a reason that contains HTML, and resume', async () => {
  const page = await open(browser);
  const reason = '<img src=x onerror="window.hacked=1"> incident';
  await go(page, object('Kustomization/shop/api'));
  await page.getByRole('button', { name: 'Suspend' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Suspend' }).click();
  assert.ok(await page.getByRole('dialog').isVisible(), 'an empty reason was accepted');
  await page.getByLabel('Reason').fill(reason);
  await page.getByRole('dialog').getByRole('button', { name: 'Suspend' }).click();
  await page.getByText(reason).waitFor();
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.getByText(reason).waitFor({ state: 'detached' });
  await close(page);
});

test('ask for a release of a newer image', async () => {
  const page = await open(browser);
  await go(page, '/images');
  const row = page.getByRole('row', { name: /Deployment\/shop\/web.*1\.1\.0.*1\.2\.0/ });
  await row.getByRole('button', { name: 'Release for' }).click();
  const dialog = page.getByRole('dialog');
  await checkAccessibility(page, 'dialog of a release');
  await dialog.getByLabel('Reason').fill('fixes the login');
  await dialog.getByLabel('Only show what would change').check();
  await dialog.getByRole('button', { name: 'Release' }).click();
  await page.getByRole('heading', { level: 1, name: /^release-web-/ }).waitFor();
  await page.getByLabel('Changes in git').getByText('web:1.2.0').first().waitFor();
  await close(page);
});

test('a decision on what has changed since it was shown is refused, with the new change', async () => {
  const page = await open(browser);
  await go(page, '/gates');
  const gate = page.locator('section', { has: page.getByRole('heading', { name: 'Gate/shop/release' }) });
  await gate.getByText('ConfigMap/shop/checkout').waitFor();
  await gate.getByRole('button', { name: 'Open', exact: true }).press('Enter');
  await page.getByRole('dialog').getByText('About 1 change that you were shown.').waitFor();
  await step('push-checkout');
  await page.getByRole('dialog').getByRole('button', { name: 'Open' }).press('Enter');
  await page.getByRole('alert').getByText('has changed since it was shown').waitFor();
  await gate.getByText('ConfigMap/shop/added-later').waitFor();

  await gate.getByRole('button', { name: 'Open', exact: true }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Open' }).click();
  await gate.getByText('Nothing waits').waitFor();
  await step('await-checkout');
  await close(page);
});

test('a change in the cluster comes to the screen', async () => {
  const page = await open(browser);
  await go(page, '/objects?q=gate/shop/appears');
  await page.getByText('0 objects').waitFor();
  await step('create-appears');
  await page.getByRole('link', { name: 'appears' }).waitFor();
  await close(page);
});

test('the API server goes away and comes back', async () => {
  const page = await open(browser);
  await step('cut-cluster');
  await go(page, object('Kustomization/shop/web'));
  const alert = page.getByRole('alert').first();
  await alert.waitFor();
  assert.doesNotMatch(await alert.textContent(), /goroutine|\.go:\d/, 'a stack trace is shown');
  await step('restore-cluster');
  await go(page, '/objects?q=gate/shop/after-outage');
  await step('create-after-outage');
  await page.getByRole('link', { name: 'after-outage' }).waitFor();
  await eventually(async () => assert.equal(await page.getByText('Lost the connection').count(), 0));
  await close(page);
});

test('the server of the UI ends and starts again', async () => {
  const page = await open(browser);
  await go(page, '/objects?q=gate/shop/after-restart');
  await page.getByText('0 objects').waitFor();
  await step('stop-ui');
  await page.getByText('Connecting to the server again').waitFor();
  await step('start-ui');
  const other = await page.context().newPage();
  await other.goto(await step('address')); // the new token
  await other.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
  await step('create-after-restart');
  await page.getByRole('link', { name: 'after-restart' }).waitFor();
  await page.getByText('Connecting to the server again').waitFor({ state: 'detached' });
  await close(page);
});

test('a browser without the token gets a clear page', async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(world.address);
  await page.getByText('You are not logged in').first().waitFor();
  await context.close();
});
