// Prepares two folders that all tests of the packages share: the tools, and an empty project with our packages
// installed. Prints the paths of the folders as JSON. `prepared.ts` runs only one such process at a time, so each
// folder is made only once. Both stay in the cache and are made again when their inputs change.
import { readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { cacheKey, ensureArtifact, hashFolder } from '@sandbar/host-agent/images/cache.ts';
import { CACHE, CHECKOUT, type Prepared } from './prepared.ts';
import { run } from './run.ts';
import { TOOLS } from './tools.ts';

/** With these options npm installs no peer dependencies, because the tests use the peers in the checkout. */
const NPM_OPTIONS = [
  '--no-audit',
  '--no-fund',
  '--loglevel=error',
  '--ignore-scripts',
  '--prefer-offline',
  '--legacy-peer-deps',
  `--cache=${path.join(CACHE, 'npm')}`,
];

/** How long an older build stays in the cache after its last use, ms. */
const KEPT_MS = 3_600_000;

async function ensureTools(): Promise<string> {
  const { folder } = await ensureArtifact(path.join(CACHE, 'package-tests'), cacheKey(TOOLS), async (temporary) => {
    await writeFile(path.join(temporary, 'package.json'), JSON.stringify({ private: true, dependencies: TOOLS }));
    await npmInstall(temporary, []);
  });
  return folder;
}

async function ensurePackages(): Promise<string> {
  const parent = path.join(CACHE, 'packed');
  const { folder } = await ensureArtifact(parent, await inputsOfPackages(), async (temporary) => {
    // Load the bundler only when it is needed, because that takes long.
    const { packAll } = await import('@sandbar/packaging/pack.ts');
    const tarballs = await packAll(CHECKOUT, path.join(temporary, 'packed'));
    const manifest = { name: 'a-consumer', private: true, type: 'module' };
    await writeFile(path.join(temporary, 'package.json'), JSON.stringify(manifest));
    await npmInstall(
      temporary,
      tarballs.map(({ file }) => file),
    );
    const names = Object.fromEntries(
      tarballs.map((tarball) => [tarball.folder, path.relative(temporary, tarball.file)]),
    );
    await writeFile(path.join(temporary, 'tarballs.json'), JSON.stringify(names));
  });
  await utimes(folder, new Date(), new Date());
  for (const name of await readdir(parent)) {
    const other = path.join(parent, name);
    const { mtimeMs } = await stat(other);
    if (Date.now() - mtimeMs > KEPT_MS) await rm(other, { recursive: true, force: true });
  }
  return folder;
}

/** A hash of everything that the packages are built from. The dashboard is not part of any package. */
async function inputsOfPackages(): Promise<string> {
  const packages = path.join(CHECKOUT, 'packages');
  const folders = (await readdir(packages)).filter((name) => name !== 'dashboard').sort();
  const isInput = (name: string) => !/(^|\/)node_modules(\/|$)|\.test\.ts$/.test(name);
  const files = ['LICENSE', 'package.json', 'package-lock.json', 'tsconfig.json'];
  return cacheKey(
    NPM_OPTIONS,
    await readFile(import.meta.filename, 'utf8'),
    await Promise.all(folders.map((name) => hashFolder(path.join(packages, name), isInput))),
    await Promise.all(files.map((name) => readFile(path.join(CHECKOUT, name), 'utf8'))),
  );
}

async function npmInstall(folder: string, packages: readonly string[]): Promise<void> {
  const { code, stderr } = await run('npm', ['install', ...NPM_OPTIONS, ...packages], { cwd: folder });
  if (code !== 0) throw new Error(`npm install: ${stderr}`);
}

const prepared: Prepared = { tools: await ensureTools(), packages: await ensurePackages() };
console.log(JSON.stringify(prepared));
