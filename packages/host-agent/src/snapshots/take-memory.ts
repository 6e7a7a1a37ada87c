// Saves the memory of a snapshot. Meanwhile the guest's processes are held (stopped by the guest agent) and its file
// systems are frozen, and the disk becomes a layer in the same pause of the VM. So memory and disk are of the same
// moment, and the disk is also consistent on its own. In a machine started from the snapshot, no process runs before
// the machine has its own random numbers and name.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Guest } from '../guest/guest.ts';
import type { MemoryPlace, MemorySave, Vm } from '../hypervisor/driver.ts';
import type { MachineRecord } from '../machines/record.ts';
import type { RootDisk } from '../machines/root-disk.ts';
import { allSettled } from '../storage/sparse-file.ts';
import {
  type FreezeLog,
  type FreezeSteps,
  freezeGuest,
  freezeRunningDisk,
  type RunningMachine,
} from './freeze-disk.ts';
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
): Promise<MemorySave> {
  const freeze = new MemoryFreeze(machine, place);
  try {
    await freezeRunningDisk(disk, machine, log, freeze);
    return freeze.save;
  } catch (error) {
    await freeze.forget();
    throw error;
  }
}

/** Saves the memory while the disk is frozen. The guest's processes are held from `begin` to `end`. */
class MemoryFreeze implements FreezeSteps {
  readonly #vm: Vm;
  readonly #guest: Guest;
  readonly #place: MemoryPlace;
  #save: MemorySave | undefined;
  #heldAt = 0;

  constructor({ vm, guest }: RunningMachine, place: MemoryPlace) {
    this.#vm = vm;
    this.#guest = guest;
    this.#place = place;
  }

  get save(): MemorySave {
    if (!this.#save) throw new Error('the memory was not saved');
    return this.#save;
  }

  prepare = async (): Promise<void> => {
    await this.forget();
    this.#save = await this.#vm.prepareMemory(this.#place);
    await flush(this.#guest);
    await this.#save.catchUp();
  };

  begin = async (): Promise<void> => {
    this.#heldAt = performance.now();
    await hold(this.#guest);
    try {
      await freezeGuest(this.#guest);
    } catch (error) {
      await this.#guest.releaseProcesses().catch(() => {});
      throw error;
    }
  };

  switchDisk = async (layerId: string): Promise<void> => {
    if (performance.now() - this.#heldAt > MAX_HELD_MS)
      throw new Error('the guest took too long to freeze its file systems');
    await this.save.save(() => this.#vm.switchDisk(layerId));
  };

  end = async (): Promise<void> => {
    await allSettled([this.#guest.releaseProcesses(), this.#guest.thaw()]);
  };

  /** Removes the files, also those of an earlier try. */
  async forget(): Promise<void> {
    await this.#save?.abandon();
    this.#save = undefined;
    removeMemoryFiles(this.#place);
  }
}

/** Writes cached data to disk while the processes still run, because that shortens the time for which they are held. */
async function flush(guest: Guest): Promise<void> {
  await freezeGuest(guest, FLUSH_TIMEOUT_MS);
  await guest.thaw();
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
