// Bad input: forged tokens, other origins, large requests, a user without rights, and objects of hostile tenants.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { checkAccessibility, close, eventually, launch, object, open, step, world } from './lib.mjs';

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const at = (path) => new URL(path, world.address).href;
const web = object('Kustomization/shop/web');

test('a forged token and a forged cookie get a clear page', async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(at('/login?token=guess'));
  await page.getByText('The token in this address is not valid: open the address that sluice ui printed').waitFor();
  await context.addCookies([{ name: 'sluice-ui', value: 'forged', url: world.address }]);
  await page.goto(at('/gates'));
  await page.getByText('You are not logged in').first().waitFor();
  assert.doesNotMatch(await page.locator('body').innerText(), /shop|goroutine/);
  await context.close();
});

test('a ServiceAccount token that is forged is refused with a reason', async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(new URL('/', world.inCluster).href);
  await page.getByLabel(/Token/).fill('eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9.');
  await page.getByRole('button', { name: /Log in/ }).click();
  await page.getByRole('alert').getByText('the token is not valid, or it has expired').waitFor();
  await context.close();
});

test('another site cannot read or write, though the browser has a session', async () => {
  const page = await open(browser);
  const before = await step('requested-web');
  const other = await page.context().newPage();
  await other.goto(world.control); // of the same host, so that the browser sends the cookie
  const tried = await other.evaluate(async ([api, action]) => {
    const attempt = (address, init) => fetch(address, { credentials: 'include', ...init }).then((r) => r.text(), () => 'refused');
    const streamed = new Promise((resolve) => {
      const stream = new EventSource(api + '/stream', { withCredentials: true });
      stream.addEventListener('hello', () => resolve('read'));
      stream.addEventListener('error', () => resolve('refused'));
    });
    return [
      await attempt(api + '/overview'),
      await attempt(action, { method: 'POST', body: '{}' }),
      await attempt(action, { method: 'POST', body: '{}', headers: { 'X-Sluice-Csrf': 'x', 'Content-Type': 'application/json' } }),
      await streamed,
    ];
  }, [at('/api/v1'), at('/api/v1/objects/Kustomization/shop/web/reconcile')]);
  assert.deepEqual([...new Set(tried)], ['refused']);
  const framed = await other.evaluate(async (address) => {
    const frame = document.createElement('iframe');
    frame.src = address;
    document.body.append(frame);
    await new Promise((resolve) => frame.addEventListener('load', resolve));
    return !!frame.contentDocument;
  }, at('/'));
  assert.equal(framed, false);
  assert.equal(await step('requested-web'), before, 'another site asked for a reconcile');
  await close(page);
});

test('large and strange requests get an answer that says what is wrong', async () => {
  const page = await open(browser);
  const { csrf } = await (await page.request.get(at('/api/v1/me'))).json();
  const headers = { 'X-Sluice-Csrf': csrf, 'Content-Type': 'application/json' };
  const post = (path, data) => page.request.post(at(path), { headers, data });
  for (const [response, status] of [
    [await post('/api/v1/releases', ' '.repeat(70_000)), 413],
    [await post('/api/v1/objects/Kustomization/shop/web/suspend', ' '.repeat(1_100_000)), 413],
    [await post('/api/v1/objects/Kustomization/shop/web/suspend', '{"reason":"x","other":1}'), 400],
    [await post('/api/v1/objects/Kustomization/shop/web/destroy', '{}'), 400],
    [await page.request.get(at('/api/v1/items?q=' + 'a'.repeat(5000))), 414],
    [await page.request.get(at('/api/v1/objects/Secret/shop/web')), 404],
    [await page.request.get(at('/api/v1/nothing')), 404],
  ]) {
    const text = await response.text();
    assert.equal(response.status(), status, `${response.url()}: ${text}`);
    assert.ok(JSON.parse(text).error, text);
    assert.doesNotMatch(text, /goroutine|\.go:\d/);
  }
  await close(page);
});

test('a kubeconfig without rights: a page that says what is missing', async () => {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  await page.goto(await step('start-without-rights'));
  await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
  await page.getByRole('alert').getByText('kinds cannot be shown, such as Alert: You may not list').waitFor();
  await page.getByText(/All \d+ kinds/).click();
  await page.getByRole('listitem').filter({ hasText: 'Kustomization: You may not list' }).waitFor();
  await checkAccessibility(page, 'overview without rights');
  const origin = new URL(page.url()).origin;
  await page.goto(origin + web);
  await page.getByRole('heading', { level: 1, name: 'web' }).waitFor();
  await page.getByRole('alert').getByText(/is forbidden.*Ask an administrator/).waitFor();
  assert.doesNotMatch(await page.locator('body').innerText(), /goroutine|Applied revision/);
  await context.close();
});

for (const width of [360, 1280]) {
  test(`an object that a tenant made as large as it can be is shown at ${width} px`, async () => {
    const page = await open(browser, { viewport: { width, height: 900 } });
    await page.goto(at(object('Kustomization/shop/huge')));
    await page.getByRole('tab', { name: 'Conditions' }).click();
    await page.getByText('Ready: False').waitFor();
    assert.ok((await page.getByRole('tabpanel').getByRole('listitem').count()) <= 50);
    for (const [tab, has] of [
      ['Resources', '5,000|objects'],
      ['YAML', 'kind: Kustomization'],
    ]) {
      await page.getByRole('tab', { name: tab }).click();
      await page.getByRole('tabpanel').getByText(new RegExp(has)).first().waitFor();
    }
    for (const path of ['/', '/objects?q=huge', '/why?q=huge', '/graph?as=table', '/changes']) {
      await page.goto(at(path));
      await page.getByRole('heading', { level: 1 }).waitFor();
      await page.getByText('Loading…').first().waitFor({ state: 'detached' });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      assert.ok(wide <= 0, `${path} is ${wide} px too wide`);
    }
    await close(page);
  });
}

test('addresses that a browser would run are not links, and those of git hosts are', async () => {
  const page = await open(browser);
  await page.goto(at('/why?q=evil'));
  await page.getByText('pull request').first().waitFor();
  for (const path of ['/why?q=evil', object('ImageUpdateAutomation/shop/evil'), '/changes']) {
    await page.goto(at(path));
    await page.getByRole('heading', { level: 1 }).waitFor();
    await page.getByText('Loading…').first().waitFor({ state: 'detached' });
    const strange = await page.evaluate(() => [...document.links].map((l) => l.protocol).filter((p) => !/^https?:$/.test(p)));
    assert.deepEqual(strange, [], path);
  }
  await page.goto(at(object('GitRepository/shop/public')));
  const source = await page.getByRole('link', { name: 'open the source' }).getAttribute('href');
  assert.equal(source, 'https://github.com/example/app');
  await page.goto(at(object('Kustomization/shop/documented')));
  await page.getByRole('tab', { name: 'History' }).click();
  const commit = page.getByRole('link', { name: 'commit in git' }).first();
  assert.equal(await commit.getAttribute('href'), `https://github.com/example/app/commit/${'b'.repeat(40)}`);
  assert.equal(await commit.getAttribute('rel'), 'noreferrer noopener');
  const compare = await page.getByRole('link', { name: 'changes since the revision before' }).first().getAttribute('href');
  assert.equal(compare, `https://github.com/example/app/compare/${'a'.repeat(40)}...${'b'.repeat(40)}`);
  await close(page);
});

test('logs of a container, with HTML in them', async () => {
  const page = await open(browser);
  await page.goto(at(web));
  await page.getByRole('tab', { name: 'Resources' }).click();
  await page.getByRole('button', { name: /^web-.*Pod/ }).first().click();
  await page.getByRole('complementary', { name: /^Pod/ }).getByRole('tab', { name: 'Manifest' }).click();
  await page.getByLabel(/^Manifest of/).getByText('kind: Pod').waitFor();
  await checkAccessibility(page, 'the panel of a pod');
  await page.getByRole('link', { name: 'Logs', exact: true }).click();
  const log = page.getByRole('region', { name: 'Log' });
  await log.getByText('first line').waitFor();
  await log.getByText('<b>second</b> line').waitFor();
  assert.equal(await log.locator('b').count(), 0);
  await close(page);
});

test('a log without an end is cut', async () => {
  const page = await open(browser);
  await step('create-endless');
  const path = '/api/v1/logs?namespace=shop&pod=endless&container=web';
  await eventually(async () => {
    const response = await page.request.get(at(path));
    const text = await response.text();
    assert.equal(response.status(), 200, text);
    assert.ok(text.length > 1_000_000 && text.length < 1_100_000, `${text.length} bytes`);
  });
  await close(page);
});
