// What a snapshot is, on disk: enough to make a machine from it without the one that it was taken of.
import type { SnapshotKind } from '@sandbar/contract/snapshot.ts';
import type { MachineImage } from '../machines/record.ts';
import type { MemoryChecks } from './memory-files.ts';

export type SnapshotRecord = {
  /** The machine it was taken of. */
  machine_id: string;
  kind: SnapshotKind;
  /** Of the root disk, GiB. */
  size_gb: number;
  stack: string;
  image: MachineImage;
  /** Ids of the layers on the image that hold the disk, bottom to top. */
  layers: readonly string[];
  vcpus: number;
  memory_mb: number;
  /** What it keeps on the host and no earlier snapshot does. */
  stored_bytes: number;
  memory?: MemoryRecord;
};

/** Of kind memory: what restoring it needs besides its files. */
export type MemoryRecord = {
  /** What opens a session with its guest agent. */
  channel_token: string;
  /** The hypervisor's `resumeFingerprint`. */
  fingerprint: string;
  checks: MemoryChecks;
};
