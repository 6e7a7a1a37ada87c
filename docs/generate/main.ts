// Generates the reference pages, then builds the site and checks its links, or serves it with `--serve`. Run it through
// `npm run docs`, which installs what it needs.
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { apiPages } from './api.ts';
import { cliPage } from './cli.ts';
import { errorsPage } from './errors.ts';
import { PROJECT_PAGES } from './project-pages.ts';
import { linkRecords } from './typescript.ts';

const checkout = path.resolve(import.meta.dirname, '../..');
const docs = path.join(checkout, 'docs');
const bin = (name: string) => path.join(docs, 'node_modules/.bin', name);
/** The folders that this program writes anew each time. */
const GENERATED = ['.generated', 'reference/api', 'reference/typescript', 'project'];
/** The documents whose links must also work for a reader of the repository, so they are checked in the checkout. */
const DOCUMENTS = ['*.md', 'docs/*.md', 'docs/guides/*.md', 'docs/reference/*.md', 'bench/*.md', 'guest-agent/*.md'];

const started = performance.now();
await generate();
if (process.argv.includes('--serve')) await run(bin('vitepress'), ['dev', ...process.argv.slice(3)], docs);
else await build();

async function generate(): Promise<void> {
  for (const folder of GENERATED) rmSync(path.join(docs, folder), { recursive: true, force: true });
  write('.generated/errors.md', errorsPage());
  for (const [name, text] of apiPages(checkout)) write(`reference/api/${name}`, text);
  for (const [file, page] of Object.entries(PROJECT_PAGES)) {
    write(page, readFileSync(path.join(checkout, file), 'utf8'));
  }
  write('.generated/cli.md', await cliPage(checkout));
  write('.generated/python.md', pythonPage());
  await run(bin('typedoc'), ['--options', 'docs/typedoc.json']);
  linkRecords(path.join(docs, 'reference/typescript'));
}

/** Makes the reference of the Python SDK from its docstrings. Needs python3. */
function pythonPage(): string {
  const [script, sdk] = ['docs/generate/python_reference.py', 'sdk-python/src/sandbar'];
  if (!existsSync(path.join(checkout, sdk))) return 'This checkout has no Python SDK.\n';
  return execFileSync('python3', [script, sdk], { cwd: checkout, encoding: 'utf8' });
}

async function build(): Promise<void> {
  await run(path.join(checkout, 'node_modules/.bin/tsc'), ['--noEmit', '-p', 'docs']);
  await checkDocuments();
  // VitePress fails on a broken link between pages, but it does not check anchors. `checkSite` does.
  await run(bin('vitepress'), ['build'], docs);
  await checkSite();
  const seconds = ((performance.now() - started) / 1000).toFixed(0);
  console.log(`  ✓ docs/.vitepress/dist (${seconds} s)`);
}

/** Checks in the checkout that every file and heading exists to which the documents link. */
async function checkDocuments(): Promise<void> {
  const files = globSync(DOCUMENTS, { cwd: checkout });
  const settings = path.join(docs, 'remark.json');
  await run(bin('remark'), ['--frail', '--quiet', '--no-stdout', '--no-config', '--rc-path', settings, ...files]);
}

/** Checks that every page and anchor exists to which the built site links. Does not follow links to other sites. */
async function checkSite(): Promise<void> {
  const isElsewhere = ['--skip', '^https?://(?!(localhost|127\\.0\\.0\\.1):)'];
  // Skip the addresses of a running service, because no service runs here.
  const isService = ['--skip', ':707[01]/?'];
  const args = ['docs/.vitepress/dist', '--recurse', '--check-fragments', '--verbosity', 'error'];
  await run(bin('linkinator'), [...args, ...isElsewhere, ...isService]);
}

function write(page: string, text: string): void {
  const file = path.join(docs, page);
  mkdirSync(path.dirname(file), { recursive: true });
  if (existsSync(file)) throw new Error(`docs/${page} exists already`);
  writeFileSync(file, text);
}

/** Runs a program with the same Node as this process. Throws when the program fails; it then has printed the reason. */
function run(program: string, args: readonly string[], cwd = checkout): Promise<void> {
  const PATH = `${path.dirname(process.execPath)}:${process.env.PATH}`;
  const child = spawn(program, args, { cwd, stdio: 'inherit', env: { ...process.env, PATH } });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => (code === 0 ? resolve() : reject(new Error(`${path.basename(program)} failed`))));
  });
}
