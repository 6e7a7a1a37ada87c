// What a machine is, on disk: enough for a new agent to go on where the old one ended.
import { join } from 'node:path';
import type { HOST_MACHINE_STATUSES, MachineSpec } from '@sandbar/contract/host-api.ts';
import type { ImageExec } from '../images/image-exec.ts';
import { readRecord } from '../storage/record-file.ts';
import type { AttachedVolume } from './machine-volumes.ts';

/** The record's file in a machine's folder. */
export const RECORD = 'machine.json';

/** The files of an image build that a machine stands on for its life, absolute paths; what its jobs take from it. */
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
  /** Whether the machine has run from its disk, so that one that is missing is a loss. */
  hasDisk: boolean;
  /** The layer that the disk is being made, while that is under way (root-disk.ts). */
  freezing: string | null;
  /** The disk that is there belongs to what the machine was before a restore, and goes. */
  isReplaced: boolean;
  /** The generation that last asked for a restore, which was done; 0: none. */
  restoredGeneration: number;
  /** The memory snapshot that it goes on from when it starts for the first time. */
  resumes: string | null;
  /** Data volumes: of a machine that runs, all that its VM may have. */
  volumes: readonly AttachedVolume[];
  status: HostMachineStatus;
  /** The generation that the present boot of the machine began with; 0: unknown, or it never ran. */
  bootGeneration: number;
  /** Why it failed, or why it stopped without being asked. */
  reason: string | null;
  /** The boot of the host that `status` was true in: a VM never outlives it. */
  bootId: string;
};

/** Of a machine that is made from its image. */
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

/** What is true of a machine whose record is found but whose VM is not. Pure. */
export function statusWithoutVm(record: MachineRecord, bootId: string): Pick<MachineRecord, 'status' | 'reason'> {
  if (record.status === 'stopped' || record.status === 'failed')
    return { status: record.status, reason: record.reason };
  if (record.bootId !== bootId) return { status: 'stopped', reason: 'the host was restarted' };
  if (record.status === 'starting')
    return { status: 'stopped', reason: 'the host agent was restarted while the machine started' };
  return { status: 'failed', reason: 'its QEMU process ended while the host agent was away' };
}
