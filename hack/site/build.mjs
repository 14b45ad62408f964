// Builds the documentation as one version of a site: node build.mjs OUT [VERSION]. Other versions in OUT are kept. The
// version is the newest tag if none is given, or main in a repository without tags.
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const [out, version = newestTag()] = process.argv.slice(2).filter(Boolean);
if (!out || !/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(version)) {
  console.error(`'${version}' is not a name for a version: use letters, digits, '.', '_' and '-'`);
  process.exit(1);
}
const dir = path.resolve(out, version);
rmSync(dir, { recursive: true, force: true }); // pages that no longer exist
mkdirSync(dir, { recursive: true });
process.env.SLUICE_SITE_VERSION = version;
process.env.SLUICE_SITE_OUT = dir;
const { build } = await import('vitepress'); // reads the variables
await build(import.meta.dirname);

const versions = readdirSync(out, { withFileTypes: true }).filter((e) => e.isDirectory()).map((e) => e.name).sort(compare);
writeFileSync(path.join(out, 'versions.json'), JSON.stringify(versions.map((name) => ({ name, pages: pagesOf(name) }))));
writeFileSync(path.join(out, 'index.html'), `<!doctype html><html lang="en"><meta charset="utf-8"><title>Sluice</title>
<meta http-equiv="refresh" content="0; url=${versions[0]}/"><a href="${versions[0]}/">Documentation</a></html>
`);
console.log(`${pagesOf(version).length} pages in ${dir}: npx --yes serve ${path.resolve(out)}, or any other web server`);

function pagesOf(name) {
  return readdirSync(path.join(out, name), { recursive: true }).filter((f) => f.endsWith('.html')).map((f) => f.replaceAll('\\', '/'));
}

function newestTag() {
  try {
    const tags = execFileSync('git', ['tag', '--list', 'v[0-9]*'], { encoding: 'utf8' }).split('\n').filter(Boolean);
    return tags.sort(compare)[0] ?? 'main';
  } catch {
    return 'main'; // not a repository, such as an unpacked archive
  }
}

// compare orders versions: the newest release first, its pre-releases after it, and names without numbers last.
function compare(a, b) {
  const key = (name) => {
    const [core, ...pre] = name.split('-');
    return [...(core.match(/\d+/g) ?? [-1]).map(Number), pre.length ? 0 : 1, ...(pre.join('-').match(/\d+/g) ?? []).map(Number)];
  };
  const [x, y] = [key(b), key(a)];
  for (let i = 0; i < Math.max(x.length, y.length); i++) if ((x[i] ?? 0) !== (y[i] ?? 0)) return (x[i] ?? 0) - (y[i] ?? 0);
  return a < b ? 1 : -1;
}
