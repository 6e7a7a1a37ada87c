// A new machine that goes on where the memory of another one was saved: its processes live, and it has an identity of its
// own before it is reported running. There is no other way to make it: a cold boot of its disk would have lost them.
import { rename, rm } from 'node:fs/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineSpec } from '@sandbar/contract/host-api.ts';
import type { Guest } from '../guest/guest.ts';
import type { Vm } from '../hypervisor/driver.ts';
import type { LeasedSpec } from '../machines/record.ts';
import { isOutOfRoom, makeOverlay } from '../storage/overlay.ts';
import { firstSession } from '../vms/first-session.ts';
import type { VmHost } from '../vms/vm-host.ts';
import type { LoadingMemory } from './memory-files.ts';
import type { MemoryRecord, SnapshotRecord } from './snapshot-record.ts';
import type { SnapshotStore } from './snapshot-store.ts';

const GIB = 1024 ** 3;

/** A machine that has never run. */
export type Resumption = {
  snapshotId: string;
  spec: LeasedSpec;
  layerPaths: readonly string[];
  diskPath: string;
  runDir: string;
  abort: AbortSignal;
  /** How long the guest may take to answer once its memory is loaded. */
  patienceMs: number;
  /** Resolves when the guest has its identity. */
  identify: (guest: Guest) => Promise<void>;
};

export type ResumeHost = { vms: VmHost; snapshots: SnapshotStore };

/**
 * Resolves when the guest has acknowledged its identity. Throws `conflict` when the snapshot cannot be resumed here or for
 * this machine, `fleet_capacity` on a full disk, `host_unavailable` when it does not go on; nothing runs then, and the machine
 * has no disk.
 */
export async function resumeMachine(host: ResumeHost, wanted: Resumption): Promise<{ vm: Vm; guest: Guest }> {
  const { snapshots, vms } = host;
  const { snapshotId, spec } = wanted;
  const { snapshot, memory } = resumableSnapshot(snapshots, snapshotId, spec, vms.hypervisor.resumeFingerprint);
  try {
    return await snapshots.useMemory(snapshotId, memory, (loaded) => restore(host, wanted, snapshot, memory, loaded));
  } catch (error) {
    if (error instanceof ServiceError || isOutOfRoom(error)) throw error;
    const why = error instanceof Error ? error.message : String(error);
    throw new ServiceError('host_unavailable', `the machine does not go on where its snapshot was taken: ${why}`, {
      retryAfterSec: 30,
      cause: error,
    });
  }
}

/** Throws `conflict` with what keeps a machine of this specification from going on where the snapshot was taken. */
export function resumableSnapshot(
  snapshots: SnapshotStore,
  id: string,
  { vcpus, memory_mb }: MachineSpec,
  fingerprint: string,
): { snapshot: SnapshotRecord; memory: MemoryRecord } {
  const snapshot = snapshots.find(id);
  if (!snapshot?.memory)
    throw new ServiceError('conflict', `memory snapshot ${id} is not on this host, or not whole any more`);
  if (snapshot.vcpus !== vcpus || snapshot.memory_mb !== memory_mb)
    throw new ServiceError(
      'conflict',
      `a machine from memory snapshot ${id} has ${snapshot.vcpus} vCPUs and ${snapshot.memory_mb} MB of memory, as the one that it was taken of`,
    );
  if (snapshot.memory.fingerprint !== fingerprint)
    throw new ServiceError(
      'conflict',
      `memory snapshot ${id} was taken with another version of QEMU or on another processor than this host has now, so nothing can go on from it; a restore of its machine still uses its disk`,
    );
  return { snapshot, memory: snapshot.memory };
}

async function restore(
  { vms, snapshots }: ResumeHost,
  wanted: Resumption,
  snapshot: SnapshotRecord,
  memory: MemoryRecord,
  { fd, ready }: LoadingMemory,
): Promise<{ vm: Vm; guest: Guest }> {
  const { snapshotId, spec, layerPaths, runDir } = wanted;
  const diskPath = `${wanted.diskPath}.clone`;
  const base = { imagePath: snapshot.image.rootfsPath, layerPaths };
  let vm: Vm | undefined;
  try {
    // Of the size that the guest knows; it is told of a larger one.
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
        channelToken: memory.channel_token,
        statePath: snapshots.memoryPlaceOf(snapshotId, memory).statePath,
        stateFormat: 'devices',
        memoryFd: fd,
        memoryReady: ready,
        templateKey: `snapshot-${snapshotId}`,
        abort: wanted.abort,
      },
    });
    if (spec.rootfs_size_gb > snapshot.size_gb) await vm.growDisk(spec.rootfs_size_gb * GIB);
    const giveUp = AbortSignal.any([wanted.abort, AbortSignal.timeout(wanted.patienceMs)]);
    const guest = await firstSession(vm, giveUp);
    await wanted.identify(guest).catch((error) => Promise.reject(identityFailure(snapshotId, error)));
    // Not before: a disk in the machine's place is one that it has run from.
    await rename(diskPath, wanted.diskPath);
    return { vm, guest };
  } catch (error) {
    if (vm) await vms.discard(vm);
    await rm(diskPath, { force: true });
    throw error;
  }
}

/** A guest whose processes ran already says `conflict`: they may have drawn what another machine's draw, so it is no machine. */
function identityFailure(snapshotId: string, cause: unknown): unknown {
  if (!(cause instanceof ServiceError && cause.code === 'conflict')) return cause;
  return new ServiceError(
    'conflict',
    `memory snapshot ${snapshotId} cannot be used: its processes went on before the machine had an identity of its own`,
    { cause },
  );
}
