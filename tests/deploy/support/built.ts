// The Debian package and the container image of this checkout, built once for all tests and kept in the cache under a
// hash of all that goes into them.
import { readdir, readFile, rm, stat, utimes } from 'node:fs/promises';
import path from 'node:path';
import { cacheKey, ensureArtifact, hashFolder } from '@sandbar/host-agent/images/cache.ts';
import type { Builder } from '@sandbar/packaging/application/parts.ts';
import { CACHE, CHECKOUT, IS_ROOT } from './checkout.ts';

/** How long builds of other sources are kept, ms. */
const KEPT_MS = 3_600_000;
/** The time of the files in the builds, in seconds since 1970. A fixed one, so that a commit alone changes nothing. */
const EPOCH_SEC = 1_700_000_000;

const FOLDERS = ['deploy', 'guest-agent', 'images', 'packages'];
const FILES = ['LICENSE', 'package.json', 'package-lock.json'];

const builder: Builder = { checkout: CHECKOUT, cacheDir: CACHE, isRoot: IS_ROOT };
type Options = { builder: Builder; outDir: string; epochSec: number; say: () => void };

/** Resolves with the path of the package. */
export function builtDeb(): Promise<string> {
  return built('deb', async (options) => {
    const { buildDeb } = await import('@sandbar/packaging/deb/deb.ts');
    return buildDeb(options);
  });
}

/** Resolves with the path of the image. Only root can build it. */
export function builtImage(): Promise<string> {
  return built('oci', async (options) => {
    const { buildImage } = await import('@sandbar/packaging/image/image.ts');
    return buildImage(options);
  });
}

async function built(kind: string, build: (options: Options) => Promise<string>): Promise<string> {
  const parent = path.join(CACHE, `packed-${kind}`);
  const { folder } = await ensureArtifact(parent, await inputs(), async (outDir) => {
    await build({ builder, outDir, epochSec: EPOCH_SEC, say: () => {} });
  });
  await utimes(folder, new Date(), new Date());
  for (const name of await readdir(parent)) {
    const other = path.join(parent, name);
    if (Date.now() - (await stat(other)).mtimeMs > KEPT_MS) await rm(other, { recursive: true, force: true });
  }
  const [file] = await readdir(folder);
  if (file === undefined) throw new Error(`${folder} is empty`);
  return path.join(folder, file);
}

async function inputs(): Promise<string> {
  const isInput = (name: string) => !/(^|\/)(node_modules|dist)(\/|$)|\.test\.ts$/.test(name);
  const folders = await Promise.all(FOLDERS.map((name) => hashFolder(path.join(CHECKOUT, name), isInput)));
  const files = await Promise.all(FILES.map((name) => readFile(path.join(CHECKOUT, name), 'utf8')));
  return cacheKey(folders, files, EPOCH_SEC);
}
