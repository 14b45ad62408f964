// Measures the UI with what is in the cluster, and prints the numbers as JSON. See TestScale in ../scale_test.go.
import { launch, step, world } from './lib.mjs';

const browser = await launch();
const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
page.setDefaultTimeout(180_000);
const origin = new URL(world.address).origin;

// The server is warm when all kinds are listed.
await page.goto(world.address);
await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
await page.getByText('Loading').waitFor({ state: 'detached' });

// paint returns the milliseconds from the navigation to the first paint with data.
async function paint(path, selector) {
  const times = [];
  for (let n = 0; n < 3; n++) {
    await page.goto('about:blank');
    const start = Date.now();
    await page.goto(origin + path, { waitUntil: 'commit' });
    await page.locator(selector).first().waitFor();
    times.push(Date.now() - start);
  }
  return times;
}

// change returns the milliseconds from a change in the cluster to the screen.
async function change() {
  const times = [];
  await page.goto(origin + '/objects?q=touched-');
  await page.getByText(/\d+ objects?$/).first().waitFor();
  for (let n = 0; n < 5; n++) {
    const name = await step('touch');
    const start = Date.now();
    await page.getByRole('link', { name, exact: true }).waitFor();
    times.push(Date.now() - start);
  }
  return times;
}

// frames returns the longest frames while a picture of the graph is moved and zoomed.
async function frames() {
  await page.goto(origin + '/graph');
  await page.locator('.picture .node').first().waitFor();
  await page.evaluate(() => {
    window.frames_ = [];
    let last = performance.now();
    const next = (now) => {
      window.frames_.push(Math.round(now - last));
      last = now;
      requestAnimationFrame(next);
    };
    requestAnimationFrame(next);
  });
  const box = await page.locator('.picture').boundingBox();
  for (let round = 0; round < 4; round++) {
    await page.mouse.move(box.x + 400, box.y + 600);
    await page.mouse.down();
    for (let n = 0; n < 60; n++) {
      await page.mouse.move(box.x + 400 - n, box.y + 600 - 9 * n);
    }
    await page.mouse.up();
  }
  await page.locator('.picture').focus();
  for (let n = 0; n < 40; n++) {
    await page.keyboard.press(n < 20 ? '-' : '+');
  }
  const all = await page.evaluate(() => window.frames_.slice(2));
  return { count: all.length, longest: all.sort((a, b) => b - a).slice(0, 5) };
}

const result = {
  'overview, ms': await paint('/', 'main .tiles, main .health'),
  'objects, ms': await paint('/objects', 'main table, main p'),
  'change to screen, ms': await change(),
  'frames of the graph, ms': await frames().catch((e) => String(e)),
};
console.log(JSON.stringify(result));
await browser.close();
