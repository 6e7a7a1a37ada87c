// The record of a machine on disk. A new agent needs nothing else to go on where the earlier one ended.
import { join } from 'node:path';
import type { HOST_MACHINE_STATUSES, MachineSpec } from '@sandbar/contract/host-api.ts';
import type { ImageExec } from '../images/image-exec.ts';
import { readRecord } from '../storage/record-file.ts';
import type { AttachedVolume } from './machine-volumes.ts';

/** The record's file in a machine's folder. */
export const RECORD = 'machine.json';

/** The files of the image build that a machine uses for its life (absolute paths), and the image's defaults for jobs. */
export type MachineImage = { kernelPath: string; initramfsPath: string; rootfsPath: string; exec?: ImageExec };

export type HostMachineStatus = (typeof HOST_MACHINE_STATUSES)[number];

/** A specification with the address that the machine has for its life. */
export type LeasedSpec = MachineSpec & { private_ip: string };

export type MachineRecord = {
  generation: number;
  desired: 'running' | 'stopped';
  spec: LeasedSpec;
  image: MachineImage;
  /** Ids of the layers between the image and the disk, bottom to top. */
  layers: readonly string[];
  /** Whether the machine has run from its disk. If so, a missing disk is a loss of data. */
  hasDisk: boolean;
  /** The id of the layer that the disk is being turned into, while that is under way (root-disk.ts). */
  freezing: string | null;
  /** The present disk is from before a restore and must be removed. */
  isReplaced: boolean;
  /** The generation of the last restore that was done; 0: none. */
  restoredGeneration: number;
  /** The memory snapshot that the machine resumes when it starts for the first time. */
  resumes: string | null;
  /** The data volumes of the machine. While it runs: all that may be plugged into its VM. */
  volumes: readonly AttachedVolume[];
  status: HostMachineStatus;
  /** The generation that the present boot of the machine began with; 0: unknown, or it never ran. */
  bootGeneration: number;
  /** Why it failed, or why it stopped without being asked. */
  reason: string | null;
  /** The boot of the host during which `status` was recorded. No VM outlives a boot of the host. */
  bootId: string;
};

/** The fields of a machine that begins with an empty disk on its image. */
export const NEW_DISK = {
  layers: [],
  hasDisk: false,
  freezing: null,
  isReplaced: false,
  restoredGeneration: 0,
  bootGeneration: 0,
  resumes: null,
} as const satisfies Partial<MachineRecord>;

/** The record in a machine's folder, undefined when there is none. Throws when it cannot be read. */
export function readMachineRecord(dir: string): MachineRecord | undefined {
  const record = readRecord<Omit<MachineRecord, keyof typeof NEW_DISK | 'volumes'>>(join(dir, RECORD));
  // A record of an earlier version lacks the newer fields.
  return record && { ...NEW_DISK, volumes: [], ...record };
}

/** The status of a machine whose record was found but whose VM was not. Pure. */
export function statusWithoutVm(record: MachineRecord, bootId: string): Pick<MachineRecord, 'status' | 'reason'> {
  if (record.status === 'stopped' || record.status === 'failed')
    return { status: record.status, reason: record.reason };
  if (record.bootId !== bootId) return { status: 'stopped', reason: 'the host was restarted' };
  if (record.status === 'starting')
    return { status: 'stopped', reason: 'the host agent was restarted while the machine started' };
  return { status: 'failed', reason: 'its QEMU process ended while the host agent was away' };
}
