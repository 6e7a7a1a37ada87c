// Makes an image the current one of its stack, and gives all other stacks the guest agent of this checkout, because the
// host agent only works with the guest agent of its own version.
import { readlink, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { AgentArtifact } from './agent.ts';
import { cacheKey, ensureArtifact, replaceLink } from './cache.ts';
import { ensureInitramfs } from './initramfs.ts';
import { readKernel } from './kernel.ts';
import type { Progress } from './progress.ts';
import { type ImageManifest, imagesFolder, type LoadedImage, listStacks, loadBuild, loadImage } from './store.ts';

const VERSION = 2;

/** Describes the image to publish. All paths are absolute. */
export type NewImage = Omit<ImageManifest, 'architecture' | 'created_at'>;

export interface PublishedImage {
  image: LoadedImage;
  /** False when everything existed already. */
  wasBuilt: boolean;
}

/**
 * Writes the manifest into a folder named after a hash of its content, then switches the stack's `current` link to that
 * folder in one step. Until the switch the stack stays unchanged. `wasBuilt`: whether the caller built a new disk.
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

/**
 * Changes the folder's time, which notifies the host agent that watches it (watch.ts). The changed link is one folder
 * deeper and does not trigger that watch.
 */
async function touchFolder(folder: string): Promise<void> {
  const now = new Date();
  await utimes(folder, now, now);
}

/**
 * Gives every stack of the cache the guest agent `agent`, in an initramfs with the modules of the stack's own kernel.
 * Takes milliseconds when nothing changed. A damaged stack is logged and left unchanged, so it does not prevent the
 * start of the service.
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
