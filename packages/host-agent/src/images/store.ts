/**
 * Reads images from the build cache. The host agent checks everything it reads, so that a missing or damaged image
 * produces a clear message at start instead of a machine that does not boot.
 */
import { readdir, readFile, readlink, stat } from 'node:fs/promises';
import path from 'node:path';
import { hasErrorCode, ImageError } from './image-error.ts';
import { type ImageExec, isImageExec } from './image-exec.ts';

/** The content of `manifest.json`. Paths are relative to the folder of this file. */
export interface ImageManifest {
  stack: string;
  description: string;
  /** `sha256:<hex>` of the disk's content. For an imported image: of the OCI manifest or index that it came from. */
  digest: string;
  architecture: 'x86_64';
  min_rootfs_gb: number;
  default: boolean;
  /** RFC 3339. */
  created_at: string;
  kernel: { path: string; version: string; sha256: string };
  initramfs: { path: string; sha256: string };
  rootfs: { path: string; bytes: number; format: 'raw' };
  /** Defaults for jobs, set by an imported image. */
  exec?: ImageExec;
  /** The reference from which the image was imported, as the user wrote it. */
  source?: { reference: string };
}

/** A manifest with absolute paths. The build's folder exists as long as the cache does. */
export interface LoadedImage extends ImageManifest {
  /** Identifies this build among all builds of its stack. */
  key: string;
  manifestPath: string;
}

/** The form of a stack's name in paths and in the API. */
const STACK_NAME = /^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$/;

const REBUILD = 'run npm start again, which builds what is missing';

export function imagesFolder(cacheDir: string): string {
  return path.join(cacheDir, 'images');
}

/**
 * Whether a stack may have this name. The control plane, which is not root, also sends stack names. They become parts
 * of paths, so this agent, which is root, checks them.
 */
export function isStackName(name: string): boolean {
  return STACK_NAME.test(name) && !name.includes('..');
}

/** Returns the current build of a stack. Throws ImageError when there is none, or when a file is missing or damaged. */
export async function loadImage(cacheDir: string, stack: string): Promise<LoadedImage> {
  if (!isStackName(stack)) throw new ImageError(`"${stack}" cannot be the name of an image`);
  const folder = path.join(imagesFolder(cacheDir), stack);
  const key = await readlink(path.join(folder, 'current')).catch((error: unknown) => {
    if (!hasErrorCode(error, 'ENOENT', 'EINVAL', 'ENOTDIR')) throw error;
    throw new ImageError(`There is no image "${stack}" in ${cacheDir}; ${REBUILD}`);
  });
  return loadBuild(path.join(folder, key));
}

/**
 * Returns one build of a stack by its folder. Older builds are read too, because existing machines still use their
 * disks. Throws ImageError when a file is missing or damaged.
 */
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

/**
 * Returns the sorted names of all stacks that have a current build. A stack whose first build is still running has
 * none.
 */
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
 * Returns the current builds of all stacks, sorted by name. Calls `onDamaged` for an unusable build and leaves it out,
 * so the other images stay usable.
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

/**
 * Returns the files of all current builds by their SHA-256. The disk of an imported image is not among them, because
 * its digest is that of the OCI image. Damaged builds are left out.
 */
export async function listImageFiles(cacheDir: string): Promise<Map<string, string>> {
  const images = await listImages(cacheDir, () => undefined);
  return new Map(
    images.flatMap(({ kernel, initramfs, rootfs, digest, source }) => {
      const disk = source === undefined ? [[digest.replace('sha256:', ''), rootfs.path] as const] : [];
      return [[kernel.sha256, kernel.path] as const, [initramfs.sha256, initramfs.path] as const, ...disk];
    }),
  );
}

/** Parses a manifest and checks every field. Throws ImageError, which mentions the path `file`. */
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
