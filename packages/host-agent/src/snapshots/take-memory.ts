// The memory of a snapshot: saved while the guest's processes are held and its file systems frozen, in the pause in which the
// disk becomes a layer. So memory and disk are of one moment, the disk is whole for who wants it alone, and in a machine that
// goes on from there no process runs before it has randomness and a name of its own.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Guest } from '../guest/guest.ts';
import type { MemoryPlace, SavedMemory } from '../hypervisor/driver.ts';
import type { MachineRecord } from '../machines/record.ts';
import type { RootDisk } from '../machines/root-disk.ts';
import { type FreezeLog, freezeGuest, freezeRunningDisk, type RunningMachine } from './freeze-disk.ts';
import { removeMemoryFiles } from './memory-files.ts';

/**
 * The guest lets its processes go on by itself after this long of its own time, should nobody tell it to. What is left of it
 * is saved with the memory, and is all that a machine from the snapshot has before its identity: so it is the longest there is.
 */
const HOLD_TIMEOUT_MS = 60_000;
/** What may be over of it when the memory is saved. */
const MAX_HELD_MS = HOLD_TIMEOUT_MS / 2;
/** Only for a guest whose host dies over it. */
const FLUSH_TIMEOUT_MS = 5_000;

/** Throws `conflict` for a machine whose memory cannot be kept. */
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
 * Like {@link freezeRunningDisk}, with the memory; throws, too, what saving it throws. The files are not complete yet; none is
 * left on a failure.
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
        if (performance.now() - heldAt > MAX_HELD_MS) throw new Error('the guest took too long to stand still');
        saved = await vm.saveMemory(place, () => vm.switchDisk(layerId));
      }),
    );
    return saved ?? Promise.reject(new Error('the memory was not saved'));
  } catch (error) {
    await forget();
    throw error;
  }
}

/** Writes out what is dirty while the processes still run, so that they are not held for it. */
async function flush(guest: Guest): Promise<void> {
  await freezeGuest(guest, FLUSH_TIMEOUT_MS);
  await guest.thaw();
}

/** Throws what `work` throws, and `conflict` when the processes were not held until its end. */
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

/** Processes that are held already were left so by an agent that died. */
async function hold(guest: Guest): Promise<void> {
  try {
    await guest.holdProcesses(HOLD_TIMEOUT_MS);
  } catch (error) {
    if (!(error instanceof ServiceError && error.code === 'conflict')) throw error;
    await guest.releaseProcesses().catch(() => {});
    await guest.holdProcesses(HOLD_TIMEOUT_MS);
  }
}
