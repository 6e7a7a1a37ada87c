/**
 * Builds all that a machine of the base stack boots from: guest agent, kernel, initramfs, disk and the manifest that
 * names them. Each is cached by what went into it, so a change of the agent alone takes seconds and no change at all
 * only the time to hash the recipes.
 */
import { readlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { type AgentSource, ensureAgent } from './agent.ts';
import { cacheKey, ensureArtifact, replaceLink } from './cache.ts';
import { hasErrorCode, ImageError } from './image-error.ts';
import { ensureInitramfs } from './initramfs.ts';
import { ensureKernel } from './kernel.ts';
import type { Progress } from './progress.ts';
import { type ImageRecipe, readImageRecipe, readKernelRecipe } from './recipe.ts';
import { ensureRootfs } from './rootfs.ts';
import { type ImageManifest, imagesFolder, type LoadedImage, loadBuild } from './store.ts';

const VERSION = 1;
const RECIPES = path.join(import.meta.dirname, '..', '..', '..', '..', 'images');
/** The chroot, the disk and the packages of a build together, measured at 0.9 GB, with room to spare. */
const _NEEDED_BYTES = 2 * 2 ** 30;

export interface BuildOptions {
  /** Where everything is kept, for instance /var/cache/sandbar. Nothing in it is ever deleted but abandoned builds. */
  cacheDir: string;
  agent: AgentSource;
  log: Progress;
  /** The folder of the recipes; that of the source tree by default. */
  recipesDir?: string;
  stack?: string;
  /** Any text: another one than last time takes the newest packages, for instance today's date. */
  refresh?: string;
  env?: NodeJS.ProcessEnv;
}

export interface BuildResult {
  image: LoadedImage;
  /** False when everything was cached. */
  wasBuilt: boolean;
}

/**
 * Makes the image of a stack current in the cache and returns it. Needs root, or an account that may make user
 * namespaces. Throws ImageError with one sentence on what to do.
 */
export async function buildBaseArtifacts(options: BuildOptions): Promise<BuildResult> {
  try {
    return await build(options);
  } catch (error) {
    if (hasErrorCode(error, 'ENOSPC', 'EDQUOT')) {
      throw new ImageError(`The disk of ${options.cacheDir} is full: free some space or choose another cache folder`);
    }
    if (hasErrorCode(error, 'EACCES', 'EROFS')) {
      throw new ImageError(
        `Cannot write ${options.cacheDir}: choose a cache folder that this account may write (${error})`,
      );
    }
    throw error;
  }
}

async function build(options: BuildOptions): Promise<BuildResult> {
  const { cacheDir, log, recipesDir = RECIPES, stack = 'base', refresh = '', env = process.env } = options;
  const [recipe, kernelRecipe] = await Promise.all([readImageRecipe(recipesDir, stack), readKernelRecipe(recipesDir)]);

  const [agent, kernel] = await Promise.all([
    ensureAgent(cacheDir, options.agent, log),
    ensureKernel(cacheDir, kernelRecipe, refresh, env, log),
  ]);
  const [initramfs, rootfs] = await Promise.all([
    ensureInitramfs(cacheDir, agent, kernel, kernelRecipe.bootModules, log),
    ensureRootfs(cacheDir, recipe, kernel, kernelRecipe.excludedModules, refresh, env, log),
  ]);

  const parent = path.join(imagesFolder(cacheDir), stack);
  const key = cacheKey('image', VERSION, describeRecipe(recipe), agent.key, kernel.key, initramfs.key, rootfs.key);
  const relative = (file: string) => path.relative(path.join(parent, key), file);
  const { folder, wasBuilt } = await ensureArtifact(
    parent,
    key,
    async (temporary) => {
      const manifest: ImageManifest = {
        ...describeRecipe(recipe),
        digest: `sha256:${rootfs.sha256}`,
        architecture: 'x86_64',
        created_at: new Date().toISOString(),
        kernel: { path: relative(kernel.path), version: kernel.version, sha256: kernel.sha256 },
        initramfs: { path: relative(initramfs.path), sha256: initramfs.sha256 },
        rootfs: { path: relative(rootfs.path), bytes: rootfs.bytes, format: 'raw' },
      };
      await writeFile(path.join(temporary, 'manifest.json'), `${JSON.stringify(manifest, null, 2)}\n`);
    },
    ['manifest.json'],
  );

  const current = path.join(parent, 'current');
  if ((await readlink(current).catch(() => '')) !== key) await replaceLink(current, key);
  log(wasBuilt ? `image ${stack} is ready: ${folder}` : `image ${stack} is up to date`);
  return { image: await loadBuild(folder), wasBuilt };
}

function describeRecipe(
  recipe: ImageRecipe,
): Pick<ImageManifest, 'stack' | 'description' | 'min_rootfs_gb' | 'default'> {
  const { stack, description, minRootfsGb, isDefault } = recipe;
  return { stack, description, min_rootfs_gb: minRootfsGb, default: isDefault };
}
