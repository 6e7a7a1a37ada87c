// Makes what a running machine has on its root disk a layer, while its file systems hold still for a moment: the guest
// freezes them, QEMU goes on in an empty overlay, the guest thaws them. All that takes time is done before.
import { randomUUID } from 'node:crypto';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Guest } from '../guest/guest.ts';
import type { Vm } from '../hypervisor/driver.ts';
import type { RootDisk } from '../machines/root-disk.ts';
import { isOutOfRoom } from '../storage/overlay.ts';

/** The guest thaws by itself after this long, should nobody tell it to: the switch takes 2 ms. */
const FREEZE_TIMEOUT_MS = 5_000;
const TRIES = 2;

/** A VM that runs, and a session with its guest. */
export type RunningMachine = { vm: Vm; guest: Guest };

export type FreezeLog = { warn(details: object, message: string): void };

/** Makes the guest write to the overlay that was staged for that layer, and does what has to be done in the same moment. */
type SwitchDisk = (layerId: string) => Promise<void>;

/**
 * Afterwards the layers in the machine's record hold the disk as it was in one moment, with its file systems whole.
 * Throws `host_unavailable` when guest or QEMU do not take part, `fleet_capacity` on a full disk; the machine runs on.
 */
export async function freezeRunningDisk(
  disk: RootDisk,
  machine: RunningMachine,
  log: FreezeLog,
  switchDisk: SwitchDisk = (layerId) => machine.vm.switchDisk(layerId),
): Promise<void> {
  const { vm } = machine;
  await settleRunningDisk(disk, vm);
  for (let tries = 1; tries <= TRIES; tries++) {
    if (await freezeOnce(disk, machine, log, switchDisk)) return;
    log.warn({ vm_id: vm.vmId }, 'a guest was not frozen any more when its disk was switched');
  }
  throw unavailable('the file systems of the machine could not be kept still; try again later');
}

/** The same for a machine that does not run. Nothing is frozen of one that has no disk yet. */
export function freezeStoppedDisk(disk: RootDisk): void {
  disk.settle();
  if (!disk.isThere) return;
  disk.beginFreeze(randomUUID());
  disk.finishFreeze();
}

/**
 * Ends what an agent that died had begun with a VM that lives: finishes it if the VM writes to the overlay already, and
 * else undoes it. A VM that it held lets its guest go on. Throws when the VM does not say.
 */
export async function settleRunningDisk(disk: RootDisk, vm: Vm): Promise<void> {
  const layerId = disk.freezing;
  if (layerId === null) return;
  if (await vm.isPaused()) await vm.resume();
  if (await vm.isDiskSwitched(layerId)) disk.finishFreeze();
  else {
    await vm.unstageDisk(layerId);
    disk.abandonFreeze();
  }
}

/** Whether the file systems were still when the disk was switched. A chain that got longer in vain does no harm. */
async function freezeOnce(
  disk: RootDisk,
  { vm, guest }: RunningMachine,
  log: FreezeLog,
  switchDisk: SwitchDisk,
): Promise<boolean> {
  const layerId = randomUUID();
  disk.beginFreeze(layerId);
  try {
    await vm.stageDisk(disk.nextPath, layerId);
    await freezeGuest(guest);
    // What QEMU says of the switch is known before anything else is decided.
    const switched = await switchDisk(layerId).catch((error: unknown) => failed(error));
    const wasStill = await guest.thaw().then(
      () => true,
      (err) => {
        log.warn({ vm_id: vm.vmId, err }, 'a guest did not say that it was thawed');
        return false;
      },
    );
    if (switched) throw switched;
    disk.finishFreeze();
    return wasStill;
  } catch (error) {
    // Whatever went wrong: QEMU says what it writes to. When it does not, the note stays for whoever takes the machine up.
    await settleRunningDisk(disk, vm).catch((err) =>
      log.warn({ vm_id: vm.vmId, err }, 'a freeze of a disk is not settled yet'),
    );
    throw snapshotFailure(error);
  }
}

/** A guest that is frozen already was left so by an agent that died. One whose answer is lost thaws by itself. */
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

/** Why a snapshot was not taken, for whoever asked for it. */
export function snapshotFailure(error: unknown): unknown {
  if (error instanceof ServiceError || isOutOfRoom(error)) return error;
  const why = error instanceof Error ? error.message : String(error);
  return unavailable(`the snapshot was not taken: ${why}`, error);
}

function unavailable(detail: string, cause?: unknown): ServiceError {
  return new ServiceError('host_unavailable', detail, { retryAfterSec: 5, cause });
}
