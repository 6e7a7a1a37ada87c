// What `sandbar image` does on this host: stacks are built from recipes and imported from OCI images into the cache
// that the host agent reads. The service need not run; when it runs, it finds the new image by itself.
import { buildImage } from '@sandbar/host-agent/images/build.ts';
import { importImage } from '@sandbar/host-agent/images/import/import.ts';
import type { PublishedImage } from '@sandbar/host-agent/images/publish.ts';
import { requireRecipe } from '@sandbar/host-agent/images/recipe.ts';
import { readConfig } from './config.ts';
import { silentProgress } from './progress.ts';
import { findGuestAgent } from './setup/guest-agent.ts';
import { ensureSystemPackages } from './setup/system-packages.ts';

/** Called with a line of text when a step begins. */
type Log = (line: string) => void;

/** Builds a stack of `images/`. Throws Problem or ImageError with what to do. */
export async function buildStack(stack: string, log: Log): Promise<PublishedImage> {
  const config = readConfig(process.env, process.getuid?.() ?? -1);
  await requireRecipe(stack);
  const progress = { ...silentProgress, say: log };
  await ensureSystemPackages(config.isRoot, progress);
  const agent = await findGuestAgent(config, progress, log);
  return buildImage({ cacheDir: config.cacheDir, agent, log, stack });
}

export type StackImport = {
  name: string;
  reference: string;
  isInsecure: boolean;
  /** Limits of the unpacked image. Undefined: the defaults. */
  maxGb: number | undefined;
  maxFiles: number | undefined;
};

/** Makes a stack from an OCI image. Throws ImageError with what is wrong. */
export function importStack(request: StackImport, log: Log): Promise<PublishedImage> {
  const { cacheDir } = readConfig(process.env, process.getuid?.() ?? -1);
  return importImage({ ...request, cacheDir, log });
}
