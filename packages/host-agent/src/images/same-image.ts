// Finds the image of a disk that comes from another host. The disk holds only what its guest has changed, so it may be
// used on an image with the same bytes only. Images of one name, and even of one digest, may differ from host to host,
// because each host builds its file systems itself. So the bytes themselves are compared.
import { createHash } from 'node:crypto';
import { open, readdir, readlink } from 'node:fs/promises';
import path from 'node:path';
import type { MachineImage } from '../machines/record.ts';
import { usedBlocks } from '../moves/archive.ts';
import { imagesFolder, isStackName, type LoadedImage, loadBuild } from './store.ts';

/** What hosts tell each other about an image. `content`: a checksum of its file system. */
export type ImageIdentity = { stack: string; digest: string; content: string };

/** The content of each file system, by its path. A build never changes. */
const contents = new Map<string, Promise<string>>();

/** Returns the identity of the image below a disk, or undefined when the build is not there any more. */
export async function identifyImage(
  cacheDir: string,
  stack: string,
  { rootfsPath }: Pick<MachineImage, 'rootfsPath'>,
): Promise<ImageIdentity | undefined> {
  const builds = await listBuilds(cacheDir, stack);
  const build = builds.find(({ rootfs }) => rootfs.path === path.resolve(rootfsPath));
  return build && { stack, digest: build.digest, content: await contentOf(build.rootfs.path, build.rootfs.bytes) };
}

/** Returns this host's files of the same image, or undefined when it does not have that image. */
export async function findSameImage(cacheDir: string, wanted: ImageIdentity): Promise<MachineImage | undefined> {
  const builds = await listBuilds(cacheDir, wanted.stack);
  for (const { digest, kernel, initramfs, rootfs, exec } of builds) {
    if (digest !== wanted.digest || (await contentOf(rootfs.path, rootfs.bytes)) !== wanted.content) continue;
    const paths = { kernelPath: kernel.path, initramfsPath: initramfs.path, rootfsPath: rootfs.path };
    return exec === undefined ? paths : { ...paths, exec };
  }
  return undefined;
}

/** Returns the usable builds of a stack, the current one first: it has the newest guest agent. */
async function listBuilds(cacheDir: string, stack: string): Promise<LoadedImage[]> {
  if (!isStackName(stack)) return [];
  const folder = path.join(imagesFolder(cacheDir), stack);
  const current = await readlink(path.join(folder, 'current')).catch(() => undefined);
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => []);
  const keys = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
  const ordered = keys.sort((a, b) => Number(b === current) - Number(a === current));
  const builds = await Promise.all(ordered.map((key) => loadBuild(path.join(folder, key)).catch(() => undefined)));
  return builds.filter((build) => build !== undefined);
}

function contentOf(file: string, bytes: number): Promise<string> {
  const known = contents.get(file) ?? sumOf(file, bytes);
  contents.set(file, known);
  known.catch(() => contents.delete(file));
  return known;
}

async function sumOf(file: string, bytes: number): Promise<string> {
  const handle = await open(file, 'r');
  try {
    const hash = createHash('sha256');
    for await (const block of usedBlocks(handle, bytes)) {
      hash.update(`${block.offset}:${block.bytes.length}:`);
      hash.update(block.bytes);
    }
    return hash.digest('hex');
  } finally {
    await handle.close();
  }
}
