// Puts the images of a back-up back into the cache, which other data directories may use. What the cache has already
// stays: its entries are named by a hash, and never change.
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { Problem } from '../problem.ts';
import { unpack } from './archive.ts';
import { IMAGE_FOLDERS } from './parts.ts';

/** The folder of the cache into which a back-up is extracted first, so that no entry is ever half there. */
export const RESTORE_FOLDER = 'restore';

/** Throws Problem, with nothing changed, when the cache has another root file system under a name of the back-up. */
export async function restoreImages(archive: string, cacheDir: string): Promise<void> {
  const staged = path.join(cacheDir, RESTORE_FOLDER);
  await rm(staged, { recursive: true, force: true });
  await mkdir(staged, { recursive: true, mode: 0o700 });
  try {
    await unpack(archive, staged);
    await assertSameDisks(staged, cacheDir);
    for (const folder of IMAGE_FOLDERS) await moveEntries(path.join(staged, folder), path.join(cacheDir, folder));
  } finally {
    await rm(staged, { recursive: true, force: true });
  }
}

/**
 * The name of a root file system is a hash of what it was built from, and the same packages may have become newer in the
 * distribution. The disk of a machine is a difference to exactly one build.
 */
async function assertSameDisks(staged: string, cacheDir: string): Promise<void> {
  for (const key of await entriesOf(path.join(staged, 'rootfs'))) {
    const [theirs, ours] = [staged, cacheDir].map((root) => path.join(root, 'rootfs', key));
    if (theirs === undefined || ours === undefined || !existsSync(ours)) continue;
    if ((await checksumOf(theirs)) === (await checksumOf(ours))) continue;
    throw new Problem(
      `${ours} is another build than the one in the back-up, on which disks of its machines are based: unless another data directory uses it, move it away and run this again`,
    );
  }
}

/** The build wrote the checksum of the disk beside it. */
async function checksumOf(folder: string): Promise<string | undefined> {
  return readFile(path.join(folder, 'sha256'), 'utf8').catch(() => undefined);
}

/** Moves what is not there yet. The builds of a stack are one folder deeper than other entries. */
async function moveEntries(from: string, to: string): Promise<void> {
  await mkdir(to, { recursive: true });
  for (const name of await entriesOf(from)) {
    const [source, target] = [path.join(from, name), path.join(to, name)];
    if (!existsSync(target)) await rename(source, target);
    else if (path.basename(to) === 'images') await moveEntries(source, target);
  }
}

async function entriesOf(folder: string): Promise<string[]> {
  return existsSync(folder) ? readdir(folder) : [];
}
