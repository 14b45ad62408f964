// The documentation as a site. The pages are the Markdown files of the repository, which read the same on a git host:
// links lead from file to file there, so they are resolved here.
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig, type MarkdownOptions } from 'vitepress';
import { readNavigation } from './navigation';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const modules = fileURLToPath(new URL('../node_modules', import.meta.url));
const host = 'https://github.com/sluice-gitops/sluice';
const version = process.env.SLUICE_SITE_VERSION ?? 'main';

// The pages of the repository outside of docs, with their paths in the site.
const topPages: Record<string, string> = {
  'README.md': 'readme.md', 'ARCHITECTURE.md': 'architecture.md', 'CONTRIBUTING.md': 'contributing.md',
  'CHANGELOG.md': 'changelog.md', 'SECURITY.md': 'security-policy.md',
  'MAINTAINERS.md': 'maintainers.md', 'CODE_OF_CONDUCT.md': 'code-of-conduct.md',
};
const front = 'hack/site/index.md';

// pathOf returns the path of a Markdown file in the site; undefined if it is not part of the site.
function pathOf(source: string): string | undefined {
  if (source === front) return 'index.md';
  if (source === 'docs/README.md') return 'overview.md';
  if (source in topPages) return topPages[source];
  if (!source.startsWith('docs/') || !existsSync(path.join(root, source))) return undefined;
  if (source.replace(/\/$/, '') === 'docs/design') return 'design/documentation.md';
  return source.endsWith('.md') ? source.slice('docs/'.length) : undefined;
}

// slugify gives headings the IDs that git hosts give them, so that links work in both places.
const slugify = (text: string) =>
  text.trim().toLowerCase().replace(/[^\p{L}\p{N}_ -]/gu, '').replaceAll(' ', '-');

// resolveLinks makes links between files those between pages. A link to a file that is no page leads to the git host.
const resolveLinks: MarkdownOptions['config'] = (md) => {
  md.core.ruler.push('links_of_files', (state) => {
    const file = state.env.realPath ?? state.env.path; // none while the title of a page is read
    if (!file) return;
    const source = path.relative(root, file).split(path.sep).join('/');
    for (const block of state.tokens) {
      for (const token of block.children ?? []) {
        if (token.type === 'code_inline') token.attrSet('v-pre', ''); // braces are for templates of charts, not of Vue
        const href = token.type === 'link_open' ? token.attrGet('href') : null;
        if (!href || /^([a-z]+:|#|\/)/.test(href)) continue;
        const [, linked, rest] = /^([^?#]*)(.*)$/.exec(href)!;
        const target = path.posix.join(path.posix.dirname(source), linked);
        const page = pathOf(target);
        token.attrSet('href', page ? `/${page}${rest}` : `${host}/blob/main/${target}${rest}`);
      }
    }
  });
  // Code that scrolls can be reached by the keyboard. The theme does so for fenced code only.
  md.core.ruler.push('indented_code', (state) => {
    for (const token of state.tokens) if (token.type === 'code_block') token.attrSet('tabindex', '0');
  });
  // A cell without words heads nothing.
  md.core.ruler.push('empty_heads', (state) => {
    state.tokens.forEach((token, i) => {
      if (token.type !== 'th_open' || state.tokens[i + 1]?.content !== '') return;
      token.tag = 'td';
      state.tokens[i + 2].tag = 'td';
    });
  });
};

const sections = readNavigation(path.join(root, 'docs', 'README.md'));

export default defineConfig({
  lang: 'en',
  title: 'Sluice',
  description: 'GitOps for Kubernetes in one binary',
  base: `/${version}/`,
  srcDir: root,
  outDir: process.env.SLUICE_SITE_OUT ?? path.join(root, 'bin', 'site', version),
  cacheDir: path.join(root, '.cache', 'site'),
  srcExclude: [
    ...readdirSync(root, { withFileTypes: true })
      .filter((e) => (e.isDirectory() ? !['docs', 'hack'].includes(e.name) : e.name.endsWith('.md') && !(e.name in topPages)))
      .map((e) => (e.isDirectory() ? `${e.name}/**` : e.name)),
    'hack/!(site)/**', 'hack/site/!(index.md)', 'hack/site/node_modules/**', 'hack/*.md',
  ],
  rewrites: (source) => pathOf(source) ?? source,
  markdown: {
    config: resolveLinks, anchor: { slugify }, headers: { slugify },
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    languageAlias: { yml: 'yaml', console: 'shellsession' },
  },
  vite: {
    // Pages are above the modules that they are compiled to import.
    resolve: { alias: [{ find: /^vue($|\/server-renderer$)/, replacement: `${modules}/vue$1` }] },
  },
  themeConfig: {
    notFound: { linkLabel: 'Take me home' },
    nav: [
      { text: 'Get started', link: '/get-started' },
      { text: 'Guides', link: '/overview' },
      { text: 'Compare', link: '/comparison' },
      { component: 'VersionSwitch' },
    ],
    sidebar: [
      ...sections,
      {
        text: 'Design', items: readdirSync(path.join(root, 'docs', 'design'))
          .filter((f) => f.endsWith('.md'))
          .map((f) => f.slice(0, -'.md'.length))
          .map((f) => ({ text: f[0].toUpperCase() + f.slice(1).replaceAll('-', ' '), link: `/design/${f}` })),
      },
    ],
    outline: { level: [2, 3], label: 'On this page' },
    search: { provider: 'local' },
    editLink: { pattern: `${host}/edit/main/:path`, text: 'Edit this page' },
    version,
  } as never,
});
