// The description of a back-up, in backup.json beside its archives. It is written last, so a folder without it is not a
// whole back-up.
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { writeAtomically } from '../private-file.ts';
import { messageOf, Problem } from '../problem.ts';
import type { Checksum } from './archive.ts';
import type { PartName } from './parts.ts';

const FILE = 'backup.json';
const FORMAT = 1;

export type Archive = Checksum & { part: PartName; file: string };

export type Manifest = {
  format: number;
  /** RFC 3339. */
  created_at: string;
  /** The data directory and the cache of the service. The records of machines have absolute paths in both. */
  home: string;
  cache: string;
  /** In the order in which they are extracted. */
  archives: Archive[];
};

export const manifestFile = (folder: string): string => path.join(folder, FILE);

export async function writeManifest(folder: string, manifest: Omit<Manifest, 'format' | 'created_at'>): Promise<void> {
  const whole: Manifest = { format: FORMAT, created_at: new Date().toISOString(), ...manifest };
  await writeAtomically(manifestFile(folder), `${JSON.stringify(whole, null, 2)}\n`);
}

/** Throws Problem when the folder is not a whole back-up of this format. */
export async function readManifest(folder: string): Promise<Manifest> {
  const file = manifestFile(folder);
  let manifest: Manifest;
  try {
    manifest = JSON.parse(await readFile(file, 'utf8')) as Manifest;
  } catch (error) {
    throw new Problem(`${folder} is not a whole back-up: cannot read ${file} (${messageOf(error)})`);
  }
  if (manifest.format === FORMAT) return manifest;
  throw new Problem(`${file} was written by another version of Sandbar, and this one cannot read it`);
}
