// The record of a machine on disk. A restarted agent needs nothing else to continue with the machine.
import { join } from 'node:path';
import type { HOST_MACHINE_STATUSES, MachineSpec } from '@sandbar/contract/host-api.ts';
import type { ImageExec } from '../images/image-exec.ts';
import { readRecord } from '../storage/record-file.ts';
import type { AttachedVolume } from './machine-volumes.ts';

/** The name of the record file in a machine's folder. */
export const RECORD = 'machine.json';

/**
 * The files of the image build that a machine uses as long as it exists (absolute paths), and the image's defaults for
 * jobs.
 */
export type MachineImage = { kernelPath: string; initramfsPath: string; rootfsPath: string; exec?: ImageExec };

export type HostMachineStatus = (typeof HOST_MACHINE_STATUSES)[number];

/** A specification with the machine's address, which does not change once the machine has run. */
export type LeasedSpec = MachineSpec & { private_ip: string };

export type MachineRecord = {
  generation: number;
  desired: 'running' | 'stopped';
  spec: LeasedSpec;
  /**
   * Whether no client was told the address of `spec` yet, so that the machine may take the address and the names of a
   * clone instead.
   */
  isAddressOpen: boolean;
  /** The UUID whose digits are in the guest's /etc/machine-id. Null: the machine's own id. */
  systemId: string | null;
  image: MachineImage;
  /** Ids of the layers between the image and the disk, bottom to top. */
  layers: readonly string[];
  /** Whether the machine has ever run from its disk. If so, a missing disk means lost data. */
  hasDisk: boolean;
  /** The id of the layer that the disk is being turned into. Null when no freeze is under way (see root-disk.ts). */
  freezing: string | null;
  /** Whether the present disk is older than a restore and must be removed. */
  isReplaced: boolean;
  /** The generation of the last completed restore, or 0 if there was none. */
  restoredGeneration: number;
  /** The id of the memory snapshot from which the machine resumes at its first start. Null if it boots. */
  resumes: string | null;
  /** The data volumes of the machine. While the machine runs, no other volume may be plugged into its VM. */
  volumes: readonly AttachedVolume[];
  status: HostMachineStatus;
  /**
   * The generation with which the present boot of the machine began, or 0 if it is unknown or the machine never ran.
   */
  bootGeneration: number;
  /** Why the machine failed, or why it stopped although nobody asked for that. */
  reason: string | null;
  /** The boot id of the host when `status` was recorded. If the host has rebooted since, the VM is gone. */
  bootId: string;
};

/** The record fields of a machine that starts from its image with an empty disk. */
export const NEW_DISK = {
  layers: [],
  hasDisk: false,
  freezing: null,
  isReplaced: false,
  restoredGeneration: 0,
  bootGeneration: 0,
  resumes: null,
} as const satisfies Partial<MachineRecord>;

/** Returns the record in a machine's folder, or undefined when there is none. Throws when it cannot be read. */
export function readMachineRecord(dir: string): MachineRecord | undefined {
  const record = readRecord<Omit<MachineRecord, keyof typeof NEW_DISK | 'volumes' | 'isAddressOpen' | 'systemId'>>(
    join(dir, RECORD),
  );
  // A record that an earlier version wrote lacks the newer fields, so add their defaults.
  return record && { ...NEW_DISK, volumes: [], isAddressOpen: false, systemId: null, ...record };
}

/** Returns the status of a machine that has a record but no running VM. Pure. */
export function statusWithoutVm(record: MachineRecord, bootId: string): Pick<MachineRecord, 'status' | 'reason'> {
  if (record.status === 'stopped' || record.status === 'failed')
    return { status: record.status, reason: record.reason };
  if (record.bootId !== bootId) return { status: 'stopped', reason: 'the host was restarted' };
  if (record.status === 'starting')
    return { status: 'stopped', reason: 'the host agent was restarted while the machine started' };
  return { status: 'failed', reason: 'its QEMU process ended while the host agent was away' };
}
