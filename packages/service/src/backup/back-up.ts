// `sandbar admin backup`: copies what cannot be made again into a folder. The whole back-up is taken while the service is
// stopped, because the files of disks and the rows about them must be of one moment. The database alone can be copied
// while the service runs.
import { existsSync } from 'node:fs';
import { chmod, mkdir, readdir, realpath } from 'node:fs/promises';
import path from 'node:path';
import { homePaths } from '@sandbar/contract/home.ts';
import { assertOurs } from '../background/uninstall.ts';
import type { ServiceConfig } from '../config.ts';
import { messageOf, Problem } from '../problem.ts';
import { findSupervisor } from '../ready-file.ts';
import { pack } from './archive.ts';
import { whileStopped } from './claim.ts';
import { type Archive, type Manifest, manifestFile, writeManifest } from './manifest.ts';
import { partsOf, presentEntries } from './parts.ts';
import { packRunningDatabase } from './running-database.ts';

/** Backs the stopped service up into `folder`. Throws Problem, and the folder is then no back-up. */
export async function backUp(config: ServiceConfig, folder: string): Promise<Archive[]> {
  const { home } = config;
  assertOurs(home);
  await ensureFolder(folder, config);
  return whileStopped(home, async () => finish(config, folder, await packParts(config, folder, () => true)));
}

/** Backs up the keys and the embedded database, while the service runs. Throws Problem. */
export async function backUpDatabase(config: ServiceConfig, folder: string): Promise<Archive[]> {
  const { home, databaseUrl } = config;
  assertOurs(home);
  if (databaseUrl !== undefined || !existsSync(homePaths(home).postgresData)) {
    throw new Problem(
      `${home} has no database of its own: back up the one of SANDBAR_DATABASE_URL with pg_dump (docs/database.md)`,
    );
  }
  if (findSupervisor(home) === undefined) {
    throw new Problem(
      `Sandbar does not run on ${home}: start it (sandbar up), or take a whole back-up, without --database`,
    );
  }
  await ensureFolder(folder, config);
  const keys = await packParts(config, folder, (name) => name === 'keys');
  return finish(config, folder, [...keys, ...(await packRunningDatabase(home, folder))]);
}

async function packParts(config: ServiceConfig, folder: string, isWanted: (name: string) => boolean) {
  const archives: Archive[] = [];
  for (const part of partsOf(config)) {
    const entries = presentEntries(part);
    if (!isWanted(part.name) || entries.length === 0) continue;
    const file = `${part.name}.tar`;
    // Other services may add images to the cache meanwhile, or hard links to them. An image itself never changes.
    const what = { root: part.root, entries, mayChange: part.name === 'images' };
    archives.push({ part: part.name, file, ...(await pack(path.join(folder, file), what)) });
  }
  return archives;
}

async function finish(config: ServiceConfig, folder: string, archives: Archive[]): Promise<Archive[]> {
  const manifest: Omit<Manifest, 'format' | 'created_at'> = { home: config.home, cache: config.cacheDir, archives };
  await writeManifest(folder, manifest);
  return archives;
}

/** Makes the folder of the back-up, which has secrets. An unfinished back-up in it is written over. */
async function ensureFolder(folder: string, { home, cacheDir }: ServiceConfig): Promise<void> {
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const place = `${await realpath(folder)}/`;
    if ([home, cacheDir].some((source) => place.startsWith(`${source}/`))) {
      throw new Problem(`${folder} lies in what is backed up: choose a folder on another disk`);
    }
    if (existsSync(manifestFile(folder))) {
      throw new Problem(`${folder} has a back-up already: choose a new folder for each one`);
    }
    const others = (await readdir(folder)).filter((name) => !/^([a-z-]+\.tar|label-.*)$/.test(name));
    if (others.length > 0) throw new Problem(`${folder} has other files: choose a new folder for each back-up`);
    await chmod(folder, 0o700);
  } catch (error) {
    if (error instanceof Problem) throw error;
    throw new Problem(`Cannot write to ${folder} (${messageOf(error)})`);
  }
}
