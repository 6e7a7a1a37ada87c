// `sandbar admin restore`: puts a back-up back, at the paths that it was taken from. It writes over nothing. A restore
// that was interrupted leaves a file that keeps the service from starting, and the next restore begins anew.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, statSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { homePaths } from '@sandbar/contract/home.ts';
import type { ServiceConfig } from '../config.ts';
import { Problem } from '../problem.ts';
import { ensureHome } from '../setup/home.ts';
import type { UserIds } from '../setup/service-user.ts';
import { unpack, verify } from './archive.ts';
import { whileStopped } from './claim.ts';
import { type Archive, readManifest } from './manifest.ts';
import { type PartName, partsOf } from './parts.ts';
import { restoreImages } from './restore-images.ts';
import { entriesOfUnfinished, noteRestore, noteRestored } from './unfinished.ts';

/**
 * Restores a back-up, or only the database in it. `user`: the account of PostgreSQL; undefined: the caller's. Throws Problem.
 */
export async function restore(
  config: ServiceConfig,
  folder: string,
  user: UserIds | undefined,
  isWanted: (part: PartName) => boolean,
): Promise<Archive[]> {
  const { home, cacheDir } = config;
  const manifest = await readManifest(folder);
  assertSamePaths(manifest, config);
  const archives = manifest.archives.filter(({ part }) => isWanted(part));
  if (archives.length === 0) throw new Problem(`${folder} has nothing of that`);
  for (const archive of archives) await verify(path.join(folder, archive.file), archive);

  await ensureHome(home, user);
  return whileStopped(home, async () => {
    for (const entry of entriesOfUnfinished(home)) await rm(path.join(home, entry), { recursive: true, force: true });
    const ofHome = archives.filter(({ part }) => part !== 'images');
    const parts = partsOf(config).filter(({ name }) => ofHome.some(({ part }) => part === name));
    const entries = parts.flatMap((part) => part.entries);
    assertAbsent(home, entries);
    await noteRestore(home, entries);
    const images = archives.find(({ part }) => part === 'images');
    if (images !== undefined) {
      await mkdir(cacheDir, { recursive: true });
      await restoreImages(path.join(folder, images.file), cacheDir);
    }
    for (const { file } of ofHome) await unpack(path.join(folder, file), home);
    if (user !== undefined) giveToService(home, user);
    run('sync', ['--file-system', home]);
    noteRestored(home);
    return archives;
  });
}

/** Records of machines have absolute paths of the cache, and the network of a service is named after its data directory. */
function assertSamePaths(manifest: { home: string; cache: string }, { home, cacheDir }: ServiceConfig): void {
  if (manifest.home === home && manifest.cache === cacheDir) return;
  throw new Problem(
    `This is a back-up of ${manifest.home}, with the cache ${manifest.cache}: restore it to the same paths (SANDBAR_HOME=${manifest.home} SANDBAR_CACHE=${manifest.cache})`,
  );
}

function assertAbsent(home: string, entries: readonly string[]): void {
  const present = entries.filter((entry) => hasContent(path.join(home, entry)));
  if (present.length === 0) return;
  throw new Problem(
    `${home} has ${present.join(', ')} already, and a restore writes over nothing: move them away first`,
  );
}

function hasContent(file: string): boolean {
  if (!existsSync(file)) return false;
  return !statSync(file).isDirectory() || readdirSync(file).length > 0;
}

/** On another computer, the account may have another number than in the archives. */
function giveToService(home: string, { uid, gid }: UserIds): void {
  const { postgresData, acme } = homePaths(home);
  for (const folder of [postgresData, acme])
    if (existsSync(folder)) run('chown', ['--recursive', `${uid}:${gid}`, folder]);
}

function run(program: string, args: string[]): void {
  const { status, stderr, error } = spawnSync(program, args, { encoding: 'utf8' });
  if (status !== 0) throw new Problem(`${program} failed: ${error?.message ?? stderr.trim()}`);
}
