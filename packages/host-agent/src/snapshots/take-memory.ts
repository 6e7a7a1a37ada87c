// Saves the memory of a snapshot. Meanwhile the guest's processes are held (stopped by the guest agent) and its file
// systems are frozen, and the disk becomes a layer in the same pause of the VM. So memory and disk are of the same
// moment, and the disk is also consistent on its own. In a machine started from the snapshot, no process runs before
// the machine has its own random numbers and name.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Guest } from '../guest/guest.ts';
import type { MemoryPlace, SavedMemory } from '../hypervisor/driver.ts';
import type { MachineRecord } from '../machines/record.ts';
import type { RootDisk } from '../machines/root-disk.ts';
import { type FreezeLog, freezeGuest, freezeRunningDisk, type RunningMachine } from './freeze-disk.ts';
import { removeMemoryFiles } from './memory-files.ts';

/**
 * The guest releases held processes by itself after this much of its own time. The remaining time is saved with the
 * memory. A machine from the snapshot must get its identity within that remaining time, so this is the longest time
 * that the guest accepts.
 */
const HOLD_TIMEOUT_MS = 60_000;
/** Longest part of the hold time that may have passed when the memory is saved. */
const MAX_HELD_MS = HOLD_TIMEOUT_MS / 2;
/** The guest thaws by itself after this time, which only matters when its host agent dies meanwhile. */
const FLUSH_TIMEOUT_MS = 5_000;

/** Throws `conflict` for a machine whose memory cannot be saved. */
export function refuseWithoutMemory({ volumes, status }: MachineRecord, isRunning: boolean): void {
  if (!isRunning)
    throw new ServiceError('conflict', `the machine is ${status}: only a running machine has memory that can be saved`);
  if (volumes.length > 0)
    throw new ServiceError(
      'conflict',
      'The machine has volumes: detach them first, or take a snapshot without memory.',
    );
}

/**
 * Like {@link freezeRunningDisk}, but also saves the memory, and also throws the errors of saving it. The returned
 * files are not complete yet. After an error no files are left.
 */
export async function freezeWithMemory(
  disk: RootDisk,
  machine: RunningMachine,
  place: MemoryPlace,
  log: FreezeLog,
): Promise<SavedMemory> {
  const { vm, guest } = machine;
  let saved: SavedMemory | undefined;
  const forget = async () => {
    await saved?.abandon();
    saved = undefined;
    removeMemoryFiles(place);
  };
  try {
    await flush(guest);
    await whileHeld(guest, (heldAt) =>
      freezeRunningDisk(disk, machine, log, async (layerId) => {
        await forget();
        if (performance.now() - heldAt > MAX_HELD_MS)
          throw new Error('the guest took too long to freeze its file systems');
        saved = await vm.saveMemory(place, () => vm.switchDisk(layerId));
      }),
    );
    return saved ?? Promise.reject(new Error('the memory was not saved'));
  } catch (error) {
    await forget();
    throw error;
  }
}

/** Writes cached data to disk while the processes still run, because that shortens the time for which they are held. */
async function flush(guest: Guest): Promise<void> {
  await freezeGuest(guest, FLUSH_TIMEOUT_MS);
  await guest.thaw();
}

/**
 * Calls `work` while the guest's processes are held. Throws what `work` throws, and `conflict` when the processes did
 * not stay held until its end.
 */
async function whileHeld(guest: Guest, work: (heldAt: number) => Promise<void>): Promise<void> {
  const heldAt = performance.now();
  await hold(guest);
  try {
    await work(heldAt);
  } catch (error) {
    await guest.releaseProcesses().catch(() => {});
    throw error;
  }
  await guest.releaseProcesses();
}

/** Holds the guest's processes. If they are held already, because an agent died, it releases them first. */
async function hold(guest: Guest): Promise<void> {
  try {
    await guest.holdProcesses(HOLD_TIMEOUT_MS);
  } catch (error) {
    if (!(error instanceof ServiceError && error.code === 'conflict')) throw error;
    await guest.releaseProcesses().catch(() => {});
    await guest.holdProcesses(HOLD_TIMEOUT_MS);
  }
}
