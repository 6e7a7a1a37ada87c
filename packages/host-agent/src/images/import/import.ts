/**
 * Makes a stack from an OCI image: fetched, judged, unpacked, made into a disk, and published beside the kernel and the
 * guest agent that every machine of this host boots with. Everything on the way is in a folder of its own, and the stack
 * is what it was until the end.
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

const VERSION = 1;
const GIB = 2 ** 30;
/** Of the unpacked layers: room for what people run, and an end for what only fills a disk. */
const DEFAULT_MAX_GB = 20;
const DEFAULT_MAX_FILES = 1_000_000;

export interface ImportOptions {
  cacheDir: string;
  /** Of the stack. */
  name: string;
  reference: string;
  /** A registry without a valid certificate is taken. */
  isInsecure: boolean;
  maxGb?: number | undefined;
  maxFiles?: number | undefined;
  log: Progress;
}

/** What is known of an imported disk besides its content; beside it, as `import.json`. */
type DiskFacts = { exec: ImageExec; minRootfsGb: number };

/**
 * Brings the image under the name of a stack. The same content again is published without unpacking it. Throws
 * ImageError with one sentence on what is wrong; the stack is then what it was.
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

/** Accounts see it, so of a file of the host it has the name only. */
function describeSource(source: ImportSource, reference: string): string {
  if (source.kind === 'registry') return reference;
  return source.kind === 'oci' ? `oci:${path.basename(source.folder)}` : `docker-archive:${path.basename(source.file)}`;
}

/** `<cacheDir>/rootfs/<key>/` of this content with these modules. */
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
    // The tree, and the disk made from it.
    await requireSpace(temporary, 2 * report.bytes + GIB);
    log(`unpacking ${report.files} files of ${report.layers} layers, ${megabytes(report.bytes)} MB`);
    await unpackLayout(scratch, limits);
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

/** What the machine needs and an image seldom has: modules of its kernel, and the working directory of its jobs. */
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
  // Whatever an image has there, a link among it, goes as a whole: nothing is written through it.
  await rm(place, { recursive: true, force: true });
  await rename(path.join(modules, 'lib', 'modules', kernel.version), place);
  if (exec.cwd !== null) await makeFolderInTree(tree, exec.cwd);
}

function megabytes(bytes: number): number {
  return Math.ceil(bytes / 2 ** 20);
}
