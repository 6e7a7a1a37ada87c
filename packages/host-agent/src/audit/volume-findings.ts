// The audit's findings about data volumes: files that the uid of an ended VM still owns, hard links left in run
// directories, and unreadable records.
import { lstatSync } from 'node:fs';
import { join } from 'node:path';
import type { HostFinding } from '@sandbar/contract/host-api.ts';
import { leftRunLinks, removeRunLinks } from '../jail/run-links.ts';
import type { DataVolumes } from '../storage/data-volumes.ts';

type VolumeFinding = HostFinding & { mend: () => Promise<void> };

/**
 * A hard link to a disk exists only for the milliseconds until QEMU has opened the disk. An older link is a leftover.
 */
const LINK_AGE_MS = 30_000;

/** `runDirs`: run directories of the running VMs. `now`: ms since 1970. */
export function volumeFindings(volumes: DataVolumes, runDirs: readonly string[], now: number): VolumeFinding[] {
  return [
    ...volumes.damaged().map((path) => finding(path, 'Its record cannot be read.', false)),
    ...volumes
      .strays()
      .map((path) =>
        finding(path, 'It belongs to the uid of a VM, and no machine has it.', true, () => volumes.takeStraysBack()),
      ),
    ...runDirs.flatMap((dir) => {
      const remove = () => removeRunLinks(dir);
      return oldLinks(dir, now).map((path) => finding(path, 'It was left when a disk was opened.', true, remove));
    }),
  ];
}

function oldLinks(runDir: string, now: number): string[] {
  return leftRunLinks(runDir)
    .map((name) => join(runDir, name))
    .filter((path) => {
      const facts = lstatSync(path, { throwIfNoEntry: false });
      return facts !== undefined && now - facts.ctimeMs > LINK_AGE_MS;
    });
}

function finding(subject: string, detail: string, fixable: boolean, mend: () => void = () => {}): VolumeFinding {
  return { kind: 'file', subject, detail, fixable, mend: async () => mend() };
}
