/**
 * Builds everything that machines of a stack boot from: guest agent, kernel, initramfs, disk and manifest. Each part is
 * cached by a hash of its inputs: a change of the agent alone takes seconds, and no change takes only the time to hash
 * the recipes.
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
  /** The folder for all artifacts, for instance /var/cache/sandbar. Only abandoned builds are ever deleted from it. */
  cacheDir: string;
  agent: AgentSource;
  log: Progress;
  /** The folder of the recipes; by default that of the source tree. */
  recipesDir?: string;
  stack?: string;
  /** Any text, for instance today's date. When it differs from the last build, the newest packages are fetched. */
  refresh?: string;
  env?: NodeJS.ProcessEnv;
}

/**
 * Builds the image of a stack, makes it current in the cache and returns it. Needs root, or an account that may create
 * user namespaces. Throws ImageError with one sentence on what to do.
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
