// The audit's findings about root disks: incomplete snapshots, unreadable records, and layers that nothing uses.
import type { HostFinding } from '@sandbar/contract/host-api.ts';
import type { SnapshotStore } from '../snapshots/snapshot-store.ts';
import type { Garbage } from '../storage/garbage.ts';

export type DiskStores = { snapshots: SnapshotStore; garbage: Garbage };
export type DiskFinding = HostFinding & { mend: () => Promise<void> };

export function diskFindings({ snapshots, garbage }: DiskStores): DiskFinding[] {
  const damaged = snapshots.damaged().map(({ path, reason }) => finding(path, reason, false));
  try {
    const collect = async () => garbage.collect();
    const strays = garbage.strays().map(({ path }) => finding(path, 'Nothing uses it.', true, collect));
    return [...damaged, ...strays];
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return [...damaged, finding('layers', `No layer is removed, because a record cannot be read: ${why}`, false)];
  }
}

function finding(subject: string, detail: string, fixable: boolean, mend = async () => {}): DiskFinding {
  return { kind: 'file', subject, detail, fixable, mend };
}
