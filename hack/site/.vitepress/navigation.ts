// The side bar is what docs/README.md says: a section for each of its headings, with the pages of its table by task.
import { readFileSync } from 'node:fs';
import path from 'node:path';

export type Entry = { text: string; link: string };
export type Section = { text: string; items: Entry[] };

const heading = /^## (.+)$/;
const row = /^\| (.+?) \| (.+) \|$/;
const pageLink = /\[([^\]]+)\]\(([^)#]+)\.md\)/g;

// readNavigation returns the sections of an index, each page in the first section that names it.
export function readNavigation(index: string): Section[] {
  const sections: Section[] = [];
  const seen = new Set<string>();
  for (const line of readFileSync(index, 'utf8').split('\n')) {
    const title = heading.exec(line)?.[1];
    if (title) sections.push({ text: title, items: [] });
    const cells = row.exec(line);
    if (!cells || sections.length === 0) continue;
    for (const [, text, file] of cells[2].matchAll(pageLink)) {
      const link = path.posix.join('/', file);
      if (seen.has(link) || link.includes('/..')) continue;
      seen.add(link);
      const name = text.replaceAll('`', '');
      sections.at(-1)!.items.push({ text: name[0].toUpperCase() + name.slice(1), link });
    }
  }
  return sections.filter((s) => s.items.length > 0);
}
