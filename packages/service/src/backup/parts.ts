// What a back-up consists of. Everything else in the data directory and in the cache can be made again.
import { existsSync } from 'node:fs';
import path from 'node:path';
import { homePaths } from '@sandbar/contract/home.ts';
import type { ServiceConfig } from '../config.ts';

/**
 * keys: identities and secrets. database: the embedded PostgreSQL. disks: machines, volumes, snapshots and their layers.
 * images: the disks, kernels and first root file systems of which the disks of machines are only the difference.
 */
export type PartName = 'keys' | 'database' | 'disks' | 'images';

export type Part = {
  name: PartName;
  /** The data directory or the cache. */
  root: string;
  /** The entries of `root` that belong to the part. Some may not exist. */
  entries: readonly string[];
};

/** The folders of the cache that machines use as long as they exist, in the order in which a restore puts them back. */
export const IMAGE_FOLDERS = ['rootfs', 'kernel', 'initramfs', 'images'] as const;

export function partsOf({ home, cacheDir }: Pick<ServiceConfig, 'home' | 'cacheDir'>): Part[] {
  const paths = homePaths(home);
  const below = (...files: string[]) => files.map((file) => path.relative(home, file));
  const keys = below(paths.secret, paths.credentials, paths.hostState, paths.fleet, paths.acme);
  // Disks of machines may be based on files that were fetched from the object store.
  const fetched = below(paths.blobs, paths.imageCopies, paths.snapshotCopies);
  const disks = below(paths.machines, paths.volumes, paths.layers, paths.snapshots);
  return [
    { name: 'keys', root: home, entries: [...keys, 'addresses.json'] },
    { name: 'database', root: home, entries: below(paths.postgresData) },
    { name: 'disks', root: home, entries: [...disks, ...fetched] },
    { name: 'images', root: cacheDir, entries: IMAGE_FOLDERS },
  ];
}

export function presentEntries({ root, entries }: Part): string[] {
  return entries.filter((entry) => existsSync(path.join(root, entry)));
}
