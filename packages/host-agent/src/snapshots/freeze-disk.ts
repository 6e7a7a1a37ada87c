// Turns the content of a running machine's root disk into a layer. The guest freezes its file systems, QEMU switches to
// an empty overlay, the guest thaws. Everything slow is done before the freeze.
import { randomUUID } from 'node:crypto';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Guest } from '../guest/guest.ts';
import type { Vm } from '../hypervisor/driver.ts';
import type { RootDisk } from '../machines/root-disk.ts';
import { isOutOfRoom } from '../storage/overlay.ts';

/** The guest thaws by itself after this time if nobody tells it to. The switch takes 2 ms. */
const FREEZE_TIMEOUT_MS = 5_000;
const TRIES = 2;

/** A running VM with a session to its guest agent. */
export type RunningMachine = { vm: Vm; guest: Guest };

export type FreezeLog = { warn(details: object, message: string): void };

/** The steps of a freeze. {@link diskFreeze} freezes only the disk; take-memory.ts also saves the memory meanwhile. */
export type FreezeSteps = {
  /** Prepares the freeze while the guest runs. */
  prepare: () => Promise<void>;
  /** Freezes the guest's file systems. After an error the guest runs as before. */
  begin: () => Promise<void>;
  /** Makes QEMU write to the empty overlay that was staged for the layer `layerId`. */
  switchDisk: (layerId: string) => Promise<void>;
  /** Ends the freeze. Throws when the guest did not stay frozen until this call. */
  end: () => Promise<void>;
};

/**
 * Freezes the disk of a running machine. Afterwards the layers in the machine's record contain the disk as of one
 * moment, with consistent file systems. Throws `host_unavailable` when the guest or QEMU fails, and `fleet_capacity` on
 * a full disk; the machine continues to run.
 */
export async function freezeRunningDisk(
  disk: RootDisk,
  machine: RunningMachine,
  log: FreezeLog,
  steps: FreezeSteps = diskFreeze(machine),
): Promise<void> {
  const { vm } = machine;
  await settleRunningDisk(disk, vm);
  for (let tries = 1; tries <= TRIES; tries++) {
    if (await freezeOnce(disk, machine, log, steps)) return;
    log.warn({ vm_id: vm.vmId }, 'a guest thawed before its disk was switched');
  }
  throw unavailable('the file systems of the machine could not be kept still; try again later');
}

function diskFreeze({ vm, guest }: RunningMachine): FreezeSteps {
  return {
    prepare: async () => {},
    begin: () => freezeGuest(guest),
    switchDisk: (layerId) => vm.switchDisk(layerId),
    end: () => guest.thaw(),
  };
}

/** Like {@link freezeRunningDisk}, for a machine that does not run. Does nothing when the machine has no disk yet. */
export function freezeStoppedDisk(disk: RootDisk): void {
  disk.settle();
  if (!disk.isThere) return;
  disk.beginFreeze(randomUUID());
  disk.finishFreeze();
}

/**
 * Completes or undoes a freeze that a crashed agent began on a live VM. First resumes the VM if that agent left it
 * paused, for a snapshot or because the host's disk was nearly full. If the VM already writes to the new overlay, the
 * freeze is completed, otherwise undone. Throws when QEMU does not answer.
 */
export async function settleRunningDisk(disk: RootDisk, vm: Vm): Promise<void> {
  if (await vm.isPaused()) await vm.resume();
  const layerId = disk.freezing;
  if (layerId === null) return;
  if (await vm.isDiskSwitched(layerId)) disk.finishFreeze();
  else {
    await vm.unstageDisk(layerId);
    disk.abandonFreeze();
  }
}

/**
 * Freezes the disk once. Returns whether the guest's file systems stayed frozen until the switch was done. If they did
 * not, the chain has one more layer, which does no harm.
 */
async function freezeOnce(
  disk: RootDisk,
  { vm }: RunningMachine,
  log: FreezeLog,
  steps: FreezeSteps,
): Promise<boolean> {
  const layerId = randomUUID();
  disk.beginFreeze(layerId);
  try {
    await vm.stageDisk(disk.nextPath, layerId);
    await steps.prepare();
    await steps.begin();
    // Waits for QEMU's answer about the switch before deciding anything else, and thaws the guest in any case.
    const switched = await steps.switchDisk(layerId).catch((error: unknown) => failed(error));
    const wasStill = await steps.end().then(
      () => true,
      (err) => {
        log.warn({ vm_id: vm.vmId, err }, 'a guest did not confirm that it goes on');
        return false;
      },
    );
    if (switched) throw switched;
    disk.finishFreeze();
    return wasStill;
  } catch (error) {
    // Asks QEMU which file it writes to and settles the freeze accordingly. If QEMU does not answer, the record still
    // mentions the freeze, and a later operation or agent settles it.
    await settleRunningDisk(disk, vm).catch((err) =>
      log.warn({ vm_id: vm.vmId, err }, 'a freeze of a disk is not settled yet'),
    );
    throw snapshotFailure(error);
  }
}

/**
 * Freezes the guest's file systems for at most `timeoutMs`. If they are frozen already, because an agent died, it thaws
 * them first. If the guest's answer is lost, the guest thaws by itself.
 */
export async function freezeGuest(guest: Guest, timeoutMs = FREEZE_TIMEOUT_MS): Promise<void> {
  try {
    await guest.freeze(timeoutMs);
  } catch (error) {
    await guest.thaw().catch(() => {});
    if (!(error instanceof ServiceError && error.code === 'conflict')) throw error;
    await guest.freeze(timeoutMs);
  }
}

function failed(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

/** Returns the error that tells a client why the snapshot was not taken. */
export function snapshotFailure(error: unknown): unknown {
  if (error instanceof ServiceError || isOutOfRoom(error)) return error;
  const why = error instanceof Error ? error.message : String(error);
  return unavailable(`the snapshot was not taken: ${why}`, error);
}

function unavailable(detail: string, cause?: unknown): ServiceError {
  return new ServiceError('host_unavailable', detail, { retryAfterSec: 5, cause });
}
