/**
 * Reads the images that the build left in the cache. The host agent trusts nothing here that it has not checked: an
 * image that is missing or damaged must be said in a sentence at start, not by a machine that does not boot.
 */
import { readdir, readFile, readlink, stat } from 'node:fs/promises';
import path from 'node:path';
import { hasErrorCode, ImageError } from './image-error.ts';
import { type ImageExec, isImageExec } from './image-exec.ts';

/** What `manifest.json` holds; paths are relative to the folder it is in. */
export interface ImageManifest {
  stack: string;
  description: string;
  /** `sha256:<hex>` of the disk's content, or of the manifest or index that an imported image is from. */
  digest: string;
  architecture: 'x86_64';
  min_rootfs_gb: number;
  default: boolean;
  /** RFC 3339. */
  created_at: string;
  kernel: { path: string; version: string; sha256: string };
  initramfs: { path: string; sha256: string };
  rootfs: { path: string; bytes: number; format: 'raw' };
  /** What an imported image says of jobs. */
  exec?: ImageExec;
  /** Where an imported image is from, as it was given. */
  source?: { reference: string };
}

/** A manifest with absolute paths, from a build that stays where it is for as long as the cache does. */
export interface LoadedImage extends ImageManifest {
  /** Names this build among all of its stack. */
  key: string;
  manifestPath: string;
}

const REBUILD = 'run npm start again, which builds what is missing';

export function imagesFolder(cacheDir: string): string {
  return path.join(cacheDir, 'images');
}

/** The current build of a stack. Throws ImageError when there is none, or one of its files is missing or damaged. */
export async function loadImage(cacheDir: string, stack: string): Promise<LoadedImage> {
  const folder = path.join(imagesFolder(cacheDir), stack);
  const key = await readlink(path.join(folder, 'current')).catch((error: unknown) => {
    if (!hasErrorCode(error, 'ENOENT', 'EINVAL', 'ENOTDIR')) throw error;
    throw new ImageError(`There is no image "${stack}" in ${cacheDir}; ${REBUILD}`);
  });
  return loadBuild(path.join(folder, key));
}

/** One build of a stack by its folder, current or not: older ones are still the backing files of machines. */
export async function loadBuild(folder: string): Promise<LoadedImage> {
  const manifestPath = path.join(folder, 'manifest.json');
  const text = await readFile(manifestPath, 'utf8').catch((error: unknown) => {
    if (!hasErrorCode(error, 'ENOENT')) throw error;
    throw new ImageError(`The image manifest ${manifestPath} is missing; ${REBUILD}`);
  });
  const manifest = parseManifest(text, manifestPath);
  const absolute = <Part extends { path: string }>(part: Part): Part => ({
    ...part,
    path: path.resolve(folder, part.path),
  });
  const image: LoadedImage = {
    ...manifest,
    kernel: absolute(manifest.kernel),
    initramfs: absolute(manifest.initramfs),
    rootfs: absolute(manifest.rootfs),
    key: path.basename(folder),
    manifestPath,
  };
  await requireFiles(image);
  return image;
}

/** The names of the stacks that have a current build, in order; one that is being built for the first time has none. */
export async function listStacks(cacheDir: string): Promise<string[]> {
  const entries = await readdir(imagesFolder(cacheDir), { withFileTypes: true }).catch((error: unknown) => {
    if (hasErrorCode(error, 'ENOENT')) return [];
    throw error;
  });
  const folders = entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  const links = await Promise.all(
    folders.map((stack) => readlink(path.join(imagesFolder(cacheDir), stack, 'current')).catch(() => undefined)),
  );
  return folders.filter((_, at) => links[at] !== undefined).sort();
}

/**
 * The current builds of all stacks, in the order of their names. One that cannot be used is told to `onDamaged` and left
 * out: it must not keep a host from the others.
 */
export async function listImages(
  cacheDir: string,
  onDamaged: (error: ImageError, stack: string) => void,
): Promise<LoadedImage[]> {
  const found = await Promise.all(
    (await listStacks(cacheDir)).map((stack) =>
      loadImage(cacheDir, stack).catch((error: unknown) => {
        if (!(error instanceof ImageError)) throw error;
        onDamaged(error, stack);
        return undefined;
      }),
    ),
  );
  return found.filter((image) => image !== undefined);
}

/** Checks a manifest field by field; `file` is only named in the ImageError. */
export function parseManifest(text: string, file: string): ImageManifest {
  const wrong = (what: string) => new ImageError(`The image manifest ${file} is damaged (${what}); ${REBUILD}`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw wrong('not JSON');
  }
  const problem = firstProblem(value);
  if (problem !== undefined) throw wrong(problem);
  return value as ImageManifest;
}

type Check = (value: unknown) => boolean;

const isText: Check = (value) => typeof value === 'string' && value !== '';
const isSha256: Check = (value) => typeof value === 'string' && /^[0-9a-f]{64}$/.test(value);
const isCount: Check = (value) => typeof value === 'number' && Number.isSafeInteger(value) && value > 0;

const MANIFEST_CHECKS: Readonly<Record<string, Check>> = {
  stack: isText,
  description: isText,
  digest: (value) => typeof value === 'string' && value.startsWith('sha256:') && isSha256(value.slice(7)),
  architecture: (value) => value === 'x86_64',
  min_rootfs_gb: isCount,
  default: (value) => typeof value === 'boolean',
  created_at: (value) => typeof value === 'string' && !Number.isNaN(Date.parse(value)),
  'kernel.path': isText,
  'kernel.version': isText,
  'kernel.sha256': isSha256,
  'initramfs.path': isText,
  'initramfs.sha256': isSha256,
  'rootfs.path': isText,
  'rootfs.bytes': isCount,
  'rootfs.format': (value) => value === 'raw',
  exec: (value) => value === undefined || isImageExec(value),
};

function firstProblem(manifest: unknown): string | undefined {
  const field = Object.entries(MANIFEST_CHECKS).find(([name, isValid]) => !isValid(valueAt(manifest, name)))?.[0];
  return field === undefined ? undefined : `"${field}" is missing or not valid`;
}

function valueAt(value: unknown, dottedName: string): unknown {
  return dottedName.split('.').reduce<unknown>((part, name) => {
    return typeof part === 'object' && part !== null ? Reflect.get(part, name) : undefined;
  }, value);
}

async function requireFiles(image: LoadedImage): Promise<void> {
  for (const file of [image.kernel.path, image.initramfs.path, image.rootfs.path]) {
    const info = await stat(file).catch(() => undefined);
    if (info === undefined) throw new ImageError(`The image "${image.stack}" lacks ${file}; ${REBUILD}`);
    if (file === image.rootfs.path && info.size !== image.rootfs.bytes) {
      throw new ImageError(
        `The disk ${file} has ${info.size} bytes instead of ${image.rootfs.bytes}; remove ${path.dirname(file)} and run npm start again`,
      );
    }
  }
}
