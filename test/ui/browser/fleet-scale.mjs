// Measures the pages of a hub with many clusters, and prints the numbers as JSON. See TestFleetScale in ../fleet_test.go.
import { launch, logInToHub, world } from './lib.mjs';

const browser = await launch();
const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
page.setDefaultTimeout(60_000);
await logInToHub(page);

// paint returns the milliseconds from the navigation to the first paint with data.
async function paint(path, selector) {
  const times = [];
  for (let n = 0; n < 3; n++) {
    await page.goto('about:blank');
    const start = Date.now();
    await page.goto(new URL(path, world.hub).href, { waitUntil: 'commit' });
    await page.locator(selector).first().waitFor();
    times.push(Date.now() - start);
  }
  return times;
}

console.log(JSON.stringify({
  'grid, ms': await paint('/', '.fleet li'),
  'table, ms': await paint('/?as=table', 'tbody a'),
  'commits, ms': await paint('/commits', '.progress'),
}));
await browser.close();
