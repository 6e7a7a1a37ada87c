// The documents outside of docs/ that the site shows as pages. The build of the site copies them. Links between them
// and the pages in docs/ work both in the checkout and on the site.
import path from 'node:path';

/** The page of the site for each document of the checkout. */
export const PROJECT_PAGES: Readonly<Record<string, string>> = {
  'ARCHITECTURE.md': 'project/architecture.md',
  'CHANGELOG.md': 'project/changelog.md',
  'CONTRIBUTING.md': 'project/contributing.md',
  'SECURITY.md': 'project/security.md',
  'bench/README.md': 'project/bench.md',
  'bench/RESULTS.md': 'project/figures.md',
};

/**
 * Turns a relative link of a page into the link that works on the site. Returns undefined when the target is not a page
 * of the site, such as a source file. The site then shows only the text of the link.
 *
 * @param page The page with the link, relative to docs/.
 */
export function siteLink(page: string, href: string): string | undefined {
  const [target = '', fragment] = href.split('#');
  const origin = Object.entries(PROJECT_PAGES).find(([, copy]) => copy === page)?.[0] ?? path.join('docs', page);
  const file = path.normalize(path.join(path.dirname(origin), decodeURIComponent(target)));
  const found = PROJECT_PAGES[file] ?? (file.startsWith('docs/') ? file.slice('docs/'.length) : undefined);
  if (found === undefined) return undefined;
  const relative = path.relative(path.dirname(page), found);
  const link = relative.startsWith('.') ? relative : `./${relative}`;
  return fragment === undefined ? link : `${link}#${fragment}`;
}
