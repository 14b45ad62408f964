// Takes a picture of every page, for docs/ui.md and for the eye: on a desk in light, and in folders in dark, on a phone and
// on a large screen. ../ui_test.go runs it before there are objects of hostile tenants.
import { mkdirSync } from 'node:fs';
import { launch, open, pages, visit, world } from './lib.mjs';

const looks = [
  { folder: '.', viewport: { width: 1440, height: 900 } },
  { folder: 'dark', viewport: { width: 1440, height: 900 }, colorScheme: 'dark' },
  { folder: 'phone', viewport: { width: 390, height: 844 } },
  { folder: 'phone-dark', viewport: { width: 390, height: 844 }, colorScheme: 'dark' },
  { folder: 'large', viewport: { width: 2560, height: 1440 } },
  { folder: 'large-dark', viewport: { width: 2560, height: 1440 }, colorScheme: 'dark' },
];

const browser = await launch();
for (const { folder, ...options } of looks) {
  mkdirSync(`${world.images}/${folder}`, { recursive: true });
  const page = await open(browser, options);
  for (const p of pages) {
    await visit(page, p);
    await page.getByText('Loading…').first().waitFor({ state: 'detached' });
    await page.evaluate(() => document.fonts.ready);
    await page.screenshot({ path: `${world.images}/${folder}/${p.name}.png` });
  }
  await page.context().close();
}
await browser.close();
