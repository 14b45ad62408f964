// Takes a picture of every page, for docs/ui.md. ../ui_test.go runs it before there are objects of hostile tenants.
import { launch, open, pages, world } from './lib.mjs';

const browser = await launch();
const page = await open(browser);
for (const p of pages) {
  await page.goto(new URL(p.path, world.address).href);
  await page.getByText(p.has).first().waitFor({ state: 'attached' });
  await page.screenshot({ path: `${world.images}/${p.name}.png` });
}
await browser.close();
