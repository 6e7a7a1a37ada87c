// Sets up a machine with everything that the service needs. Each step first checks whether it has anything to do, so a
// second set-up takes milliseconds.
import { existsSync, realpathSync } from 'node:fs';
import { mkdir, stat } from 'node:fs/promises';
import path from 'node:path';
import type { AgentSource } from '@sandbar/host-agent/images/agent.ts';
import { assertRestored } from '../backup/unfinished.ts';
import { recordHome } from '../cache-homes.ts';
import type { ServiceConfig } from '../config.ts';
import { hasErrorCode, messageOf, Problem } from '../problem.ts';
import type { Progress, Say } from '../progress.ts';
import { findGuestAgent } from './guest-agent.ts';
import { assertRoomForSetup, ensureHome } from './home.ts';
import { ensureServiceUser, type UserIds } from './service-user.ts';
import { ensureSystemPackages } from './system-packages.ts';

export type SetUp = {
  /** The account of the unprivileged processes; undefined when the caller is not root. */
  user: UserIds | undefined;
  /** Undefined in an installed package, which needs no Go. */
  goPath: string | undefined;
};

/** Sets the machine up for the whole service. Throws Problem. */
export async function setUp(config: ServiceConfig, progress: Progress): Promise<SetUp> {
  await ensurePackages(config, progress);
  const user = config.isRoot ? await ensureServiceUser(progress) : undefined;
  if (user !== undefined) await assertReadableByOthers(config.checkout);
  return { user, goPath: await ensureImages(config, user, progress) };
}

/** Sets the machine up for a host agent alone. Throws Problem. */
export async function setUpHost(config: ServiceConfig, progress: Progress): Promise<void> {
  await ensurePackages(config, progress);
  await ensureImages(config, undefined, progress);
}

async function ensurePackages({ isRoot }: ServiceConfig, progress: Progress): Promise<void> {
  assertPlatform();
  await progress.step('system packages', () => ensureSystemPackages(isRoot, progress));
}

/** Makes the folders and the base image. Returns the path of the Go toolchain, see {@link SetUp}. */
async function ensureImages(
  config: ServiceConfig,
  user: UserIds | undefined,
  progress: Progress,
): Promise<string | undefined> {
  assertRestored(config.home);
  await ensureHome(config.home, user);
  await ensureCacheFolder(config.cacheDir);
  await ensureRecord(config, progress);
  if (!existsSync(path.join(config.cacheDir, 'images', 'base', 'current'))) {
    for (const folder of [config.home, config.cacheDir]) await assertRoomForSetup(folder);
  }
  const agent = await progress.step('guest agent', (say) => findGuestAgent(config, progress, say));
  await progress.step('base image', (say) => ensureImage(config.cacheDir, agent, say));
  return 'goPath' in agent ? agent.goPath : undefined;
}

function assertPlatform(): void {
  if (process.platform === 'linux' && process.arch === 'x64') return;
  throw new Problem(`Sandbar runs on x86-64 Linux, and this is ${process.arch} ${process.platform}`);
}

async function ensureCacheFolder(cacheDir: string): Promise<void> {
  await mkdir(cacheDir, { recursive: true }).catch((error: unknown) => {
    throw new Problem(`Cannot make the cache folder ${cacheDir} (${String(error)}): name another one in SANDBAR_CACHE`);
  });
}

/** Records in the cache that the data directory uses it. A cache that others filled may be read-only for the caller. */
async function ensureRecord({ cacheDir, home }: ServiceConfig, progress: Progress): Promise<void> {
  try {
    await recordHome(cacheDir, realpathSync(home));
  } catch (error) {
    if (!hasErrorCode(error, 'EACCES', 'EPERM', 'EROFS')) throw error;
    progress.say(
      `  ! cannot record in the cache that ${home} uses it (${messageOf(error)}): a purge of another data directory may remove the images of its machines`,
    );
  }
}

/**
 * Throws Problem when the service's account may not read the code. The account sees the code through a bind mount, so
 * only the file modes below the checkout matter, not those of the folders above it.
 */
async function assertReadableByOthers(checkout: string): Promise<void> {
  for (const name of ['packages', 'packages/control-plane/src', 'node_modules', 'node_modules/node/bin/node']) {
    const { mode } = await stat(path.join(checkout, name)).catch((error: unknown) => {
      if (hasErrorCode(error, 'ENOENT')) return { mode: 0o777 };
      throw error;
    });
    if ((mode & 0o005) === 0o005) continue;
    throw new Problem(
      `The control plane does not run as root and may not read ${checkout}/${name}: allow it with: chmod -R o+rX "${checkout}/packages" "${checkout}/node_modules"`,
    );
  }
}

async function ensureImage(cacheDir: string, agent: AgentSource, say: Say): Promise<void> {
  const { buildImage } = await import('@sandbar/host-agent/images/build.ts');
  const { ImageError } = await import('@sandbar/host-agent/images/image-error.ts');
  try {
    // Show these lines only when the step takes long enough for a person to wonder.
    const began = performance.now();
    const log = (line: string) => (performance.now() - began > 200 || line.startsWith('build')) && say(line);
    await buildImage({ cacheDir, agent, log });
  } catch (error) {
    if (error instanceof ImageError) throw new Problem(error.message);
    throw error;
  }
}
