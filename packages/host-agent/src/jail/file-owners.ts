// Finds out which uids of VMs own files in the data directory: disks of stopped machines, layers, templates, and what a
// crash left.
import { lstatSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { UidRange } from './uid-pool.ts';

/** VMs own files and folders at most this deep: `machines/<id>/disk.qcow2`, `run/machines/<id>`. */
const DEPTH = 3;

/**
 * Returns the uids of the range that own an entry of `home`. Takes 0.1 s for 1,000 machines. Does not enter
 * folders of other accounts: the database has many files, and in a VM's folder there is no file of another VM.
 */
export function ownersOfFiles(home: string, range: UidRange): Set<number> {
  const owners = new Set<number>();
  const visit = (dir: string, depth: number) => {
    for (const name of namesIn(dir)) {
      const path = join(dir, name);
      const facts = lstatSync(path, { throwIfNoEntry: false });
      if (facts === undefined) continue;
      if (facts.uid >= range.first && facts.uid <= range.last) owners.add(facts.uid);
      else if (facts.isDirectory() && facts.uid === process.getuid?.() && depth < DEPTH) visit(path, depth + 1);
    }
  };
  visit(home, 1);
  return owners;
}

/** Returns the names in a folder. Empty when the folder was removed meanwhile. */
function namesIn(dir: string): string[] {
  try {
    return readdirSync(dir);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}
