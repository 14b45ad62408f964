// Logs, workloads and their actions, codes, and what came of a decision at a gate.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { checkAccessibility, close, eventually, launch, object, open, world } from './lib.mjs';

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const at = (path) => new URL(path, world.address).href;

test('logs of all pods: search with exclusion, levels, fields, one pod, previous containers', async () => {
  const page = await open(browser);
  await page.goto(at('/logs?kind=Deployment&namespace=shop&name=worker'));
  const lines = page.getByRole('status').filter({ hasText: /lines?/ });
  await lines.getByText('18 lines · live').waitFor();
  assert.equal(await page.getByRole('group', { name: 'Pods' }).getByRole('button').count(), 3);
  await page.getByRole('searchbox', { name: 'Search' }).fill('order -refused');
  await lines.getByText('6 lines of 18').waitFor();
  assert.match(page.url(), /q=order\+-refused/);
  await page.reload(); // as somebody to whom the link was sent
  await lines.getByText('6 lines of 18').waitFor();
  await page.getByRole('searchbox', { name: 'Search' }).fill('');
  await page.getByRole('button', { name: 'error 3' }).click();
  await lines.getByText('3 lines of 18').waitFor();
  await page.getByRole('button', { name: 'All fields' }).first().click();
  await page.getByText('"code": "51"').waitFor();
  await checkAccessibility(page, 'all fields of a line');
  const pod = page.getByRole('group', { name: 'Pods' }).getByRole('button').first();
  await pod.click();
  await lines.getByText('1 line of 18').waitFor();
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Download' }).click()]);
  assert.equal(download.suggestedFilename(), 'shop-worker.log');
  await page.goto(at('/logs?kind=Deployment&namespace=shop&name=worker'));
  await page.getByRole('button', { name: 'Previous' }).click();
  await page.getByText('panic: out of cards').first().waitFor();
  await lines.getByText('the log ended').waitFor();
  await page.goto(at('/logs?kind=Deployment&namespace=shop&name=nothing'));
  await page.getByRole('alert').getByText('not found').waitFor();
  await close(page);
});

test('a rollout is restarted and a CronJob run, each after a question', async () => {
  const page = await open(browser);
  await page.goto(at('/workloads?q=worker'));
  await page.getByRole('button', { name: 'Restart Deployment/shop/worker' }).click();
  await checkAccessibility(page, 'question before a restart');
  await page.getByRole('dialog').getByRole('button', { name: 'Restart' }).click();
  await page.getByRole('dialog').getByText('The rollout was restarted.').waitFor();
  await page.keyboard.press('Escape');
  await page.goto(at('/workloads?kind=CronJob'));
  await page.getByRole('button', { name: 'Run CronJob/shop/backup now' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Run now' }).click();
  await page.getByRole('dialog').getByText(/Created Job\/shop\/backup-/).waitFor();
  await close(page);
});

test('a code leads to its explanation, from the search and from a message', async () => {
  const page = await open(browser);
  await page.getByText('Live', { exact: true }).waitFor(); // the page listens to keys then
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox', { name: /earch/ }).fill('slu-1101');
  await page.getByRole('option', { name: /Explain SLU-1101/ }).waitFor();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'GitOperationFailed' }).waitFor();
  await page.goto(at('/clusters'));
  await page.getByRole('link', { name: 'SLU-1006' }).first().click();
  await page.getByRole('heading', { name: 'ReconciliationFailed' }).waitFor();
  await close(page);
});

test('the page follows what a person asked for until it is done', async () => {
  const page = await open(browser);
  await page.goto(at(object('Kustomization/shop/api')));
  await page.getByRole('button', { name: 'Reconcile' }).click();
  await page.getByText('Reconciled:').waitFor();
  await page.goto(at(object('Gate/shop/audit')));
  await page.getByRole('button', { name: 'Approve' }).click();
  await page.getByRole('dialog').getByLabel('Reason (optional)').fill('read it');
  await page.getByRole('dialog').getByRole('button', { name: 'Approve' }).click();
  const outcome = page.getByRole('status').filter({ hasText: 'report' });
  await eventually(async () => assert.match(await outcome.innerText(), /applied/));
  await page.getByText('admin approved').waitFor();
  await eventually(async () => assert.match(await page.locator('main').innerText(), /Approve is off: you approved already \("read it"\)/));
  await close(page);
});
