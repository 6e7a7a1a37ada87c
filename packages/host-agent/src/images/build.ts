/**
 * Builds all that a machine of a stack boots from: guest agent, kernel, initramfs, disk and the manifest that names
 * them. Each is cached by what went into it, so a change of the agent alone takes seconds and no change at all
 * only the time to hash the recipes.
 */
import { type AgentSource, ensureAgent } from './agent.ts';
import { explainDiskErrors } from './image-error.ts';
import { ensureInitramfs } from './initramfs.ts';
import { ensureKernel } from './kernel.ts';
import type { Progress } from './progress.ts';
import { type PublishedImage, publishImage, renewAgent } from './publish.ts';
import { type ImageRecipe, RECIPES, readImageRecipe, readKernelRecipe } from './recipe.ts';
import { ensureRootfs } from './rootfs.ts';
import type { ImageManifest } from './store.ts';

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

/**
 * Makes the image of a stack current in the cache and returns it. Needs root, or an account that may make user
 * namespaces. Throws ImageError with one sentence on what to do.
 */
export function buildImage(options: BuildOptions): Promise<PublishedImage> {
  return explainDiskErrors(options.cacheDir, () => build(options));
}

async function build(options: BuildOptions): Promise<PublishedImage> {
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

  const { path: kernelPath, version, sha256 } = kernel;
  const published = await publishImage(
    cacheDir,
    {
      ...describeRecipe(recipe),
      digest: `sha256:${rootfs.sha256}`,
      kernel: { path: kernelPath, version, sha256 },
      initramfs: { path: initramfs.path, sha256: initramfs.sha256 },
      rootfs: { path: rootfs.path, bytes: rootfs.bytes, format: 'raw' },
    },
    { wasBuilt: false, log },
  );
  await renewAgent(cacheDir, agent, kernelRecipe.bootModules, log);
  return published;
}

function describeRecipe(
  recipe: ImageRecipe,
): Pick<ImageManifest, 'stack' | 'description' | 'min_rootfs_gb' | 'default'> {
  const { stack, description, minRootfsGb, isDefault } = recipe;
  return { stack, description, min_rootfs_gb: minRootfsGb, default: isDefault };
}
