// The site of the documents: navigation, search, and links that lead out of docs/.
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { slug } from 'github-slugger';
import { type DefaultTheme, defineConfig } from 'vitepress';
import { apiTags } from '../generate/api.ts';
import { siteLink } from '../generate/project-pages.ts';

const docs = path.resolve(import.meta.dirname, '..');
const page = (text: string, link: string) => ({ text, link });

/** The pages that TypeDoc has written. */
function typescriptSidebar(): DefaultTheme.SidebarItem[] {
  const file = path.join(docs, 'reference/typescript/typedoc-sidebar.json');
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as DefaultTheme.SidebarItem[]) : [];
}

const sidebar: DefaultTheme.SidebarItem[] = [
  { text: 'Start', items: [page('What it is', '/'), page('Quick start', '/quick-start')] },
  {
    text: 'Guides',
    items: [
      page('Install the packages', '/guides/packages'),
      page('Agents', '/guides/agents'),
      page('MCP server', '/guides/mcp'),
      page('Commands and jobs', '/guides/exec'),
      page('Terminal', '/guides/terminal'),
      page('Files', '/guides/files'),
      page('Ports', '/guides/ports'),
      page('Volumes and snapshots', '/guides/volumes-and-snapshots'),
      page('Keys and accounts', '/guides/keys-and-accounts'),
      page('Billing', '/billing'),
    ],
  },
  {
    text: 'Running it',
    items: [
      page('Operating', '/operating'),
      page('Settings and failures', '/guides/running'),
      page('Replicas and TLS', '/replicas'),
      page('Operator', '/guides/operator'),
      page('Deploy', '/deploy'),
      page('Metrics', '/metrics'),
      page('Traces', '/tracing'),
      page('The database', '/database'),
      page('A fleet of hosts', '/fleet'),
      page('Images and snapshots in an object store', '/blobs'),
      page('KVM and emulation', '/kvm'),
      page('Security', '/security'),
    ],
  },
  {
    text: 'References',
    items: [
      { text: 'TypeScript SDK', link: '/reference/typescript-sdk', collapsed: true, items: typescriptSidebar() },
      page('Python SDK', '/reference/python-sdk'),
      page('CLI', '/reference/cli'),
      {
        text: 'API',
        link: '/reference/api-overview',
        collapsed: true,
        items: [
          ...apiTags(path.dirname(docs)).map(({ name, page: file }) => page(name, `/reference/api/${file}`)),
          page('Objects', '/reference/api/objects'),
        ],
      },
      page('Errors', '/reference/errors'),
    ],
  },
  {
    text: 'Project',
    collapsed: true,
    items: [
      page('Contributing', '/project/contributing'),
      page('Architecture', '/project/architecture'),
      page('Requirements', '/requirements'),
      page('Figures', '/project/figures'),
      page('How it is measured', '/project/bench'),
      page('Reporting a vulnerability', '/project/security'),
      page('Changelog', '/project/changelog'),
    ],
  },
];

/** The parts of a token of markdown-it that matter here. */
type Token = {
  type: string;
  tag: string;
  attrGet(name: string): string | null;
  attrSet(name: string, value: string): void;
};

/** Turns links to documents of the checkout into links to their pages, and takes away links to other files of it. */
function followLinks(relativePath: string, tokens: readonly Token[]): void {
  const open: boolean[] = [];
  for (const token of tokens) {
    if (token.type === 'link_open') {
      const href = token.attrGet('href') ?? '';
      const isOutside = /^([a-z]+:|#|\/)/.test(href);
      const link = isOutside ? href : siteLink(relativePath, href);
      open.push(link !== undefined);
      token.attrSet('href', link ?? '');
      if (link === undefined) token.type = token.tag = 'span';
    }
    if (token.type === 'link_close' && open.pop() === false) token.type = token.tag = 'span';
  }
}

// biome-ignore lint/style/noDefaultExport: VitePress reads the default export.
export default defineConfig({
  title: 'Sandbar',
  description: 'Real microVMs for programs, AI agents and people, through a REST API. Runs on any Linux computer.',
  lang: 'en-GB',
  base: process.env.SANDBAR_DOCS_BASE ?? '/',
  head: [['link', { rel: 'icon', href: `${process.env.SANDBAR_DOCS_BASE ?? '/'}icon.svg`, type: 'image/svg+xml' }]],
  // Addresses that documents name as examples are on the reader's own computer.
  ignoreDeadLinks: 'localhostLinks',
  markdown: {
    // A heading has the same anchor as on GitHub, so a link to it works on the site and in the repository.
    anchor: { slugify: slug },
    // Braces in texts are braces, not attributes of elements.
    attrs: { disable: true },
    config: (md) => {
      md.core.ruler.push('checkout-links', ({ tokens, env }) => {
        const { relativePath } = env as { relativePath: string };
        for (const { children } of tokens) followLinks(relativePath, children ?? []);
      });
    },
  },
  // The index of the search is one file.
  vite: { build: { chunkSizeWarningLimit: 4000 } },
  themeConfig: {
    logo: '/icon.svg',
    nav: [
      page('Quick start', '/quick-start'),
      page('Guides', '/guides/agents'),
      page('API', '/reference/api-overview'),
      page('Errors', '/reference/errors'),
    ],
    sidebar,
    outline: { level: [2, 3] },
    search: { provider: 'local' },
    docFooter: { prev: 'Before', next: 'Next' },
  },
});
