// Makes an image current under the name of its stack, and keeps the stacks that are there at the guest agent of this
// checkout: the host agent speaks with the one that belongs to it.
import { readlink, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { AgentArtifact } from './agent.ts';
import { cacheKey, ensureArtifact, replaceLink } from './cache.ts';
import { ensureInitramfs } from './initramfs.ts';
import { readKernel } from './kernel.ts';
import type { Progress } from './progress.ts';
import { type ImageManifest, imagesFolder, type LoadedImage, listStacks, loadBuild, loadImage } from './store.ts';

const VERSION = 2;

/** With absolute paths. */
export type NewImage = Omit<ImageManifest, 'architecture' | 'created_at'>;

export interface PublishedImage {
  image: LoadedImage;
  /** False when everything was there. */
  wasBuilt: boolean;
}

/**
 * Writes the manifest into a folder named after all that is in it, then points `current` there, in one step: until then
 * the stack is what it was. `wasBuilt` says whether its disk is new.
 */
export async function publishImage(
  cacheDir: string,
  image: NewImage,
  { wasBuilt, log }: { wasBuilt: boolean; log: Progress },
): Promise<PublishedImage> {
  const { stack } = image;
  const parent = path.join(imagesFolder(cacheDir), stack);
  const key = cacheKey('image', VERSION, relativeTo(cacheDir, image));
  const manifest: ImageManifest = {
    ...relativeTo(path.join(parent, key), image),
    architecture: 'x86_64',
    created_at: new Date().toISOString(),
  };
  const made = await ensureArtifact(
    parent,
    key,
    (temporary) => writeFile(path.join(temporary, 'manifest.json'), `${JSON.stringify(manifest, null, 2)}\n`),
    ['manifest.json'],
  );

  const current = path.join(parent, 'current');
  const isNew = (await readlink(current).catch(() => '')) !== key;
  if (isNew) {
    await replaceLink(current, key);
    await touchFolder(imagesFolder(cacheDir));
  }
  log(isNew ? `image ${stack} is ready: ${made.folder}` : `image ${stack} is up to date`);
  return { image: await loadBuild(made.folder), wasBuilt: wasBuilt || made.wasBuilt };
}

/** What a host agent watches (watch.ts): the link itself is a folder deeper. */
async function touchFolder(folder: string): Promise<void> {
  const now = new Date();
  await utimes(folder, now, now);
}

/**
 * Gives every other stack this agent, with the kernel whose modules are on its disk; takes milliseconds when nothing
 * changed. A stack that is damaged is left as it is, and said: it keeps no service from its start.
 */
export async function renewAgent(
  cacheDir: string,
  agent: AgentArtifact,
  bootModules: readonly string[],
  log: Progress,
): Promise<void> {
  for (const stack of await listStacks(cacheDir)) {
    try {
      const {
        key: _,
        manifestPath: __,
        architecture: ___,
        created_at: ____,
        ...image
      } = await loadImage(cacheDir, stack);
      const kernel = await readKernel(path.dirname(image.kernel.path));
      const initramfs = await ensureInitramfs(cacheDir, agent, kernel, bootModules, log);
      if (initramfs.path === image.initramfs.path) continue;
      const { path: file, sha256 } = initramfs;
      await publishImage(cacheDir, { ...image, initramfs: { path: file, sha256 } }, { wasBuilt: false, log });
    } catch (error) {
      log(`image ${stack} keeps its old guest agent: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
}

function relativeTo(folder: string, image: NewImage): NewImage {
  const relative = <Part extends { path: string }>(part: Part): Part => ({
    ...part,
    path: path.relative(folder, part.path),
  });
  const { kernel, initramfs, rootfs } = image;
  return { ...image, kernel: relative(kernel), initramfs: relative(initramfs), rootfs: relative(rootfs) };
}
