// The record of a snapshot on disk. It has everything needed to make a machine from it, without the original machine.
import type { SnapshotKind } from '@sandbar/contract/snapshot.ts';
import type { ResumeNeeds } from '../hypervisor/resume-needs.ts';
import type { MachineImage } from '../machines/record.ts';
import type { MemoryChecks } from './memory-files.ts';

export type SnapshotRecord = {
  /** The machine that the snapshot was taken of. */
  machine_id: string;
  kind: SnapshotKind;
  /** Size of the root disk in GiB. */
  size_gb: number;
  stack: string;
  image: MachineImage;
  /** Ids of the layers above the image that contain the disk, bottom first. */
  layers: readonly string[];
  vcpus: number;
  memory_mb: number;
  /** Bytes that this snapshot keeps on the host in addition to earlier snapshots. */
  stored_bytes: number;
  memory?: MemoryRecord;
};

/** What a memory snapshot needs to be restored, besides its files. */
export type MemoryRecord = {
  needs?: ResumeNeeds;
  /** Only in records of earlier versions, which had no `needs`. */
  fingerprint?: string;
  checks: MemoryChecks;
};
