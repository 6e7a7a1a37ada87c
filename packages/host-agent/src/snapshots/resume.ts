// Makes a new machine from a memory snapshot: the processes of the snapshot go on in it. The machine gets its own
// identity before it is reported as running. When the resume fails, the machine is not booted cold instead, because
// that would lose the processes.
import { rename, rm } from 'node:fs/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineSpec } from '@sandbar/contract/host-api.ts';
import type { Guest } from '../guest/guest.ts';
import type { Vm } from '../hypervisor/driver.ts';
import { chooseQemu, needsOfFingerprint, type ResumeChoice, type ResumeNeeds } from '../hypervisor/resume-needs.ts';
import type { LeasedSpec } from '../machines/record.ts';
import { isOutOfRoom, makeOverlay } from '../storage/overlay.ts';
import { firstSession } from '../vms/first-session.ts';
import type { VmHost } from '../vms/vm-host.ts';
import type { LoadingMemory } from './memory-files.ts';
import type { MemoryRecord, SnapshotRecord } from './snapshot-record.ts';
import type { SnapshotStore } from './snapshot-store.ts';

const GIB = 1024 ** 3;

/** A new machine, which has never run before. */
export type Resumption = {
  snapshotId: string;
  spec: LeasedSpec;
  layerPaths: readonly string[];
  diskPath: string;
  runDir: string;
  abort: AbortSignal;
  /** How long in ms the guest may take to answer after its memory is loaded. */
  patienceMs: number;
  /** Gives the guest its identity; resolves when it has acknowledged that. */
  identify: (guest: Guest) => Promise<void>;
};

/** A snapshot that this host can resume. `qemuPath`: the QEMU program that can resume it. */
type Resumable = { snapshot: SnapshotRecord; memory: MemoryRecord; qemuPath: string };

export type ResumeHost = { vms: VmHost; snapshots: SnapshotStore };

/**
 * Resolves when the guest has acknowledged its identity. Throws `conflict` when the snapshot cannot be resumed on this
 * host or with this specification, `fleet_capacity` on a full disk, `host_unavailable` when the guest does not answer.
 * When it throws, nothing runs and the machine has no disk.
 */
export async function resumeMachine(host: ResumeHost, wanted: Resumption): Promise<{ vm: Vm; guest: Guest }> {
  const { snapshots, vms } = host;
  const { snapshotId, spec } = wanted;
  const choices = await vms.hypervisor.resumeChoices();
  const found = resumableSnapshot(snapshots, snapshotId, spec, choices);
  try {
    return await snapshots.useMemory(snapshotId, found.memory, (loaded) => restore(host, wanted, found, loaded));
  } catch (error) {
    if (error instanceof ServiceError || isOutOfRoom(error)) throw error;
    const why = error instanceof Error ? error.message : String(error);
    throw new ServiceError('host_unavailable', `the machine does not go on where its snapshot was taken: ${why}`, {
      retryAfterSec: 30,
      cause: error,
    });
  }
}

/** Throws `conflict`, with the reason, when a machine of this specification cannot resume the snapshot. */
export function resumableSnapshot(
  snapshots: SnapshotStore,
  id: string,
  { vcpus, memory_mb }: MachineSpec,
  choices: readonly ResumeChoice[],
): Resumable {
  const snapshot = snapshots.find(id);
  if (!snapshot?.memory)
    throw new ServiceError('conflict', `memory snapshot ${id} is not on this host, or not whole any more`);
  if (snapshot.vcpus !== vcpus || snapshot.memory_mb !== memory_mb)
    throw new ServiceError(
      'conflict',
      `a machine from memory snapshot ${id} has ${snapshot.vcpus} vCPUs and ${snapshot.memory_mb} MB of memory, as the one that it was taken of`,
    );
  const needs = needsOf(snapshot.memory, choices);
  const answer = needs ? chooseQemu(needs, choices) : { missing: 'it needs the QEMU with which it was taken' };
  if ('missing' in answer)
    throw new ServiceError(
      'conflict',
      `memory snapshot ${id} cannot go on here: ${answer.missing}; a restore of its machine still uses its disk`,
    );
  return { snapshot, memory: snapshot.memory, qemuPath: answer.qemuPath };
}

function needsOf({ needs, fingerprint }: MemoryRecord, [usual]: readonly ResumeChoice[]): ResumeNeeds | undefined {
  return needs ?? (fingerprint && usual ? needsOfFingerprint(fingerprint, usual) : undefined);
}

async function restore(
  { vms, snapshots }: ResumeHost,
  wanted: Resumption,
  { snapshot, memory, qemuPath }: Resumable,
  { fd, ready }: LoadingMemory,
): Promise<{ vm: Vm; guest: Guest }> {
  const { snapshotId, spec, layerPaths, runDir } = wanted;
  const diskPath = `${wanted.diskPath}.clone`;
  const base = { imagePath: snapshot.image.rootfsPath, layerPaths };
  let vm: Vm | undefined;
  try {
    // Make the disk as large as the guest in the snapshot knows it. If the machine's disk is larger, `growDisk` below
    // enlarges it and tells the guest.
    makeOverlay(diskPath, base, snapshot.size_gb);
    vm = await vms.launch({
      ...base,
      vcpus: spec.vcpus,
      memoryMb: spec.memory_mb,
      diskPath,
      runDir,
      privateIp: spec.private_ip,
      start: {
        kind: 'restore',
        statePath: snapshots.memoryPlaceOf(snapshotId, memory).statePath,
        memoryFd: fd,
        memoryReady: ready,
        qemuPath,
        templateKey: `snapshot-${snapshotId}`,
        abort: wanted.abort,
      },
    });
    if (spec.rootfs_size_gb > snapshot.size_gb) await vm.growDisk(spec.rootfs_size_gb * GIB);
    const giveUp = AbortSignal.any([wanted.abort, AbortSignal.timeout(wanted.patienceMs)]);
    const guest = await firstSession(vm, giveUp);
    await wanted.identify(guest).catch((error) => Promise.reject(identityFailure(snapshotId, error)));
    // Move the disk here only now, because a disk at this path means that the machine has run from it.
    await rename(diskPath, wanted.diskPath);
    return { vm, guest };
  } catch (error) {
    if (vm) await vms.discard(vm);
    await rm(diskPath, { force: true });
    throw error;
  }
}

/**
 * The error for a guest that refused its identity. It is `conflict` when the guest's processes ran before the guest got
 * its identity, because they may have drawn the same random numbers as the processes of another machine.
 */
function identityFailure(snapshotId: string, cause: unknown): unknown {
  if (!(cause instanceof ServiceError && cause.code === 'conflict')) return cause;
  return new ServiceError(
    'conflict',
    `memory snapshot ${snapshotId} cannot be used: its processes went on before the machine had an identity of its own`,
    { cause },
  );
}
