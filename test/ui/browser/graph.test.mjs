// A graph of 2,000 nodes: what a frame costs while the picture moves, and what a change costs.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { close, eventually, launch, open, world } from './lib.mjs';

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const count = 2000;
const frameLimit = 50; // milliseconds of processor time of a frame

// large is an answer of the server with 50 sources, each with 39 applications.
function large() {
  const nodes = [];
  const edges = [];
  const add = (kind, name, sources) => {
    const id = `${kind}/large/${name}`;
    nodes.push({ id, kind, namespace: 'large', name, state: 'ready', revision: 'main@sha1:0123', sources, generation: 1 });
    sources?.forEach((from) => edges.push({ from, to: id, relation: 'source' }));
    return id;
  };
  for (let n = 0; n < 50; n++) {
    const source = add('GitRepository', `repo-${n}`);
    for (let k = 1; k < count / 50; k++) {
      add('Kustomization', `app-${n}-${k}`, [source]);
    }
  }
  return { nodes, edges, omitted: 0 };
}

// replaceStream gives the page a stream that sends only what the test asks for.
function replaceStream(page) {
  return page.addInitScript(() => {
    window.EventSource = class extends EventTarget {
      constructor() {
        super();
        window.send = (event, data) => this.dispatchEvent(new MessageEvent(event, { data: JSON.stringify(data) }));
      }
    };
  });
}

// processorTime returns the seconds that the thread of the page worked, which other processes do not change.
async function processorTime(session) {
  const { metrics } = await session.send('Performance.getMetrics');
  return metrics.find((m) => m.name === 'TaskDuration').value;
}

test('a graph of 2,000 nodes moves without work for what does not change', async () => {
  const page = await open(browser);
  await replaceStream(page);
  let reads = 0;
  await page.route('**/api/v1/graph?*', (route) => {
    reads++;
    return route.fulfill({ json: large() });
  });
  await page.goto(new URL('/graph', world.address).href);
  const picture = page.getByRole('group', { name: 'Picture of the graph' });
  await picture.waitFor();
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  await page.evaluate(() => {
    const picture = document.querySelector('.picture');
    const seen = (window.seen = { frames: [], nodes: 0, changes: 0 });
    new MutationObserver((all) => (seen.changes += all.length)).observe(picture, { childList: true, subtree: true });
    let last = performance.now();
    const next = (now) => {
      seen.frames.push(Math.round(now - last));
      seen.nodes = Math.max(seen.nodes, picture.querySelectorAll('*').length);
      last = now;
      requestAnimationFrame(next);
    };
    requestAnimationFrame(next);
  });
  // Each frame moves or zooms, without a rest in which what can be focused is made anew.
  const work = await processorTime(session);
  const frames = await page.evaluate(async () => {
    const picture = document.querySelector('.picture');
    const key = (key) => picture.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
    const keys = [...Array(40).fill('ArrowDown'), ...Array(12).fill('-'), ...Array(40).fill('ArrowUp'), ...Array(12).fill('+')];
    for (const k of keys) {
      key(k);
      await new Promise(requestAnimationFrame);
    }
    return keys.length;
  });
  const each = ((await processorTime(session)) - work) * 1000 / frames;
  const seen = await page.evaluate(() => window.seen);
  const longest = seen.frames.sort((a, b) => b - a).slice(0, 3);
  console.log(`graph of ${count} nodes: ${each.toFixed(1)} ms of work a frame, ${frames} frames, longest ${longest} ms, ` +
    `${seen.nodes} elements`);
  assert.ok(each < frameLimit, `a frame needs ${each} ms`);
  assert.ok(seen.nodes < 2500, `${seen.nodes} elements are in the picture`);
  assert.ok(seen.changes <= 4, `the elements of the picture changed ${seen.changes} times in ${frames} frames`);
  assert.equal(reads, 1);
  await close(page);
});

test('a change of a state is taken from the stream, without reading the graph again', async () => {
  const page = await open(browser);
  const graph = large();
  const node = graph.nodes[1];
  let reads = 0;
  await page.route('**/api/v1/graph?*', (route) => {
    reads++;
    node.state = reads === 1 ? 'ready' : 'suspended';
    return route.fulfill({ json: graph });
  });
  await replaceStream(page);
  await page.goto(new URL('/graph?as=table&namespace=large', world.address).href);
  const row = page.getByRole('row').filter({ has: page.getByRole('link', { name: node.id, exact: true }) });
  await row.getByText('ready').waitFor();
  await page.evaluate(() => window.send('hello', {}));
  // After a connection everything is read again. A change that comes before that answer would read once more.
  await row.getByText('suspended').waitFor();
  assert.equal(reads, 2);

  const send = (...items) => page.evaluate((all) => window.send('changes', all), items.map((item) => ({ id: item.id, item })));
  const other = { ...node, id: 'Gate/elsewhere/new', kind: 'Gate', namespace: 'elsewhere', name: 'new', sources: [] };
  await send({ ...node, state: 'failed' }, other);
  await row.getByText('failed').waitFor();
  assert.equal(reads, 2, 'a change of a state read the graph again');
  await send({ ...node, sources: [graph.nodes[80].id] });
  await eventually(() => assert.equal(reads, 3)); // a relation changed
  await close(page);
});
