/**
 * Makes a stack from an OCI image: fetches it, inspects it, unpacks it, makes a disk and publishes the disk with the
 * kernel and guest agent that all machines of this host boot with. Intermediate files are in a temporary folder, so the
 * stack stays unchanged until the end.
 */
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { cacheKey, ensureArtifact, withTemporaryFolder } from '../cache.ts';
import { explainDiskErrors } from '../image-error.ts';
import { type ImageExec, readImageExec } from '../image-exec.ts';
import { type KernelArtifact, readKernel } from '../kernel.ts';
import type { Progress } from '../progress.ts';
import { type NewImage, type PublishedImage, publishImage } from '../publish.ts';
import { RECIPES, readKernelRecipe } from '../recipe.ts';
import { copyModules, requireSpace, uuidFrom } from '../rootfs.ts';
import { loadImage } from '../store.ts';
import { diskSizeGb, makeFileSystem, measureTree } from './file-system.ts';
import type { LayoutLimits } from './inspect-layout.ts';
import { checkStackName, type ImportSource, parseReference } from './reference.ts';
import { copyImage, type FoundImage, findImage } from './skopeo.ts';
import { requireTools } from './tools.ts';
import { makeFolderInTree } from './tree.ts';
import { judgeLayout, unpackLayout } from './unpack.ts';

const VERSION = 2;
const GIB = 2 ** 30;
/** Limits on the unpacked layers. They leave room for ordinary images and stop images made to fill the disk. */
const DEFAULT_MAX_GB = 20;
const DEFAULT_MAX_FILES = 1_000_000;

export interface ImportOptions {
  cacheDir: string;
  /** The name of the stack. */
  name: string;
  reference: string;
  /** Whether to accept a registry without a valid certificate. */
  isInsecure: boolean;
  maxGb?: number | undefined;
  maxFiles?: number | undefined;
  log: Progress;
}

/** Facts about an imported disk, kept in `import.json` next to it. */
type DiskFacts = { exec: ImageExec; minRootfsGb: number };

/**
 * Imports an image as a stack. If the same content was imported before, it is published without unpacking it again.
 * Throws ImageError with one sentence on what is wrong; the stack is then unchanged.
 */
export function importImage(options: ImportOptions): Promise<PublishedImage> {
  const { cacheDir, name, reference, isInsecure, maxGb = DEFAULT_MAX_GB, maxFiles = DEFAULT_MAX_FILES } = options;
  checkStackName(name);
  const source = parseReference(reference, isInsecure);
  requireTools(cacheDir);
  const limits = { bytes: maxGb * GIB, files: maxFiles };
  return explainDiskErrors(cacheDir, () =>
    withTemporaryFolder(path.join(cacheDir, 'import'), (scratch) => importInto(scratch, options, { source, limits })),
  );
}

type Judged = { source: ImportSource; limits: LayoutLimits };

async function importInto(
  scratch: string,
  options: ImportOptions,
  { source, limits }: Judged,
): Promise<PublishedImage> {
  const { cacheDir, name, reference, log } = options;
  const { kernel: kernelFile, initramfs } = await loadImage(cacheDir, 'base');
  const kernel = await readKernel(path.dirname(kernelFile.path));
  log(`looking up ${reference}`);
  const found = await findImage(source, scratch, limits.bytes);
  const { folder, wasBuilt } = await ensureDisk({ cacheDir, limits, log }, found, kernel, scratch);
  const { exec, minRootfsGb }: DiskFacts = JSON.parse(await readFile(path.join(folder, 'import.json'), 'utf8'));
  const image: NewImage = {
    stack: name,
    description: `Imported from ${describeSource(source, reference)}`,
    default: false,
    min_rootfs_gb: minRootfsGb,
    digest: found.digest,
    kernel: kernelFile,
    initramfs,
    rootfs: { path: path.join(folder, 'rootfs.img'), bytes: minRootfsGb * GIB, format: 'raw' },
    exec,
    source: { reference },
  };
  return publishImage(cacheDir, image, { wasBuilt, log });
}

/** Describes the image's origin. Customers can read this text, so a path on the host is reduced to its last part. */
function describeSource(source: ImportSource, reference: string): string {
  if (source.kind === 'registry') return reference;
  return source.kind === 'oci' ? `oci:${path.basename(source.folder)}` : `docker-archive:${path.basename(source.file)}`;
}

/**
 * Returns `<cacheDir>/rootfs/<key>/` with the disk for this image content and these kernel modules, and makes it when
 * it is missing.
 */
async function ensureDisk(
  { cacheDir, limits, log }: Pick<ImportOptions, 'cacheDir' | 'log'> & { limits: LayoutLimits },
  found: FoundImage,
  kernel: KernelArtifact,
  scratch: string,
) {
  const { excludedModules } = await readKernelRecipe(RECIPES);
  const key = cacheKey('import', VERSION, found.digest, kernel.key, excludedModules);
  return ensureArtifact(path.join(cacheDir, 'rootfs'), key, async (temporary) => {
    log('fetching the image');
    await copyImage(found, scratch, limits.bytes);
    log('checking its layers');
    const report = await judgeLayout(scratch, limits);
    const exec = readImageExec(report.config);
    // Space for the unpacked tree and for the disk made from it.
    await requireSpace(temporary, 2 * report.bytes + GIB);
    log(`unpacking ${report.files} files of ${report.layers.length} layers, ${megabytes(report.bytes)} MB`);
    await unpackLayout(scratch, report, limits);
    await completeTree(path.join(scratch, 'tree'), exec, kernel, excludedModules, scratch);

    const { bytes, files } = await measureTree(scratch);
    const minRootfsGb = diskSizeGb(bytes, files);
    const disk = path.join(temporary, 'rootfs.img');
    log(`making a disk of ${minRootfsGb} GB with ${megabytes(bytes)} MB on it`);
    await makeFileSystem(scratch, disk, minRootfsGb, uuidFrom(key));
    const facts: DiskFacts = { exec, minRootfsGb };
    await writeFile(path.join(temporary, 'import.json'), JSON.stringify(facts));
  });
}

/**
 * Adds what a machine needs and an image usually lacks: the kernel's modules, and the working directory of its jobs.
 */
async function completeTree(
  tree: string,
  exec: ImageExec,
  kernel: KernelArtifact,
  excludedModules: readonly string[],
  scratch: string,
): Promise<void> {
  const modules = path.join(scratch, 'modules');
  await copyModules(kernel, excludedModules, modules);
  const place = path.join(await makeFolderInTree(tree, '/lib/modules'), kernel.version);
  // Whatever the image has at this path is removed as a whole, so that nothing is written through a symlink there.
  await rm(place, { recursive: true, force: true });
  await rename(path.join(modules, 'lib', 'modules', kernel.version), place);
  if (exec.cwd !== null) await makeFolderInTree(tree, exec.cwd);
}

function megabytes(bytes: number): number {
  return Math.ceil(bytes / 2 ** 20);
}
