// Attaches data volumes to a machine and detaches them. The machine's record gets a volume before the volume is plugged
// in, and loses it after it is unplugged. So the record always names all volumes that QEMU may have, and a restarted
// agent asks QEMU which of them it really has. If an attach or detach was interrupted, the next one unplugs the volume
// and starts over.
//
//   plug:    add to record ─▶ claim (format) volume ─▶ plug into VM ─▶ mount ─▶ record as mounted
//   unplug:  record as not mounted ─▶ unmount ─▶ unplug from VM ─▶ release volume ─▶ remove from record
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineVolume } from '@sandbar/contract/host-api.ts';
import { VOLUME_BOUNDS } from '@sandbar/contract/volume-states.ts';
import type { Guest, VolumeMount } from '../guest/guest.ts';
import type { Vm } from '../hypervisor/driver.ts';
import { removeRunLinks } from '../jail/run-links.ts';
import type { DataVolumes } from '../storage/data-volumes.ts';

/**
 * A volume of a machine. `isMounted` is true when the guest has confirmed the mount. When it is false, the volume may
 * be plugged in, mounted, both or neither.
 */
export type AttachedVolume = VolumeMount & { isMounted: boolean };

/** The list of volumes in the machine's record. On a full disk `save` throws, while `note` changes only the memory. */
export type VolumeBook = {
  read(): readonly AttachedVolume[];
  save(volumes: readonly AttachedVolume[]): void;
  note(volumes: readonly AttachedVolume[]): void;
};

type VolumeLog = { warn(details: object, message: string): void };
/** Returns the session with the guest agent. Throws `host_unavailable` when the guest does not answer. */
type FindGuest = () => Promise<Guest>;

/** Throws `validation_error` when two of the volumes have the same id or the same mount path. */
export function checkVolumes(wanted: readonly MachineVolume[]): void {
  const [ids, paths] = [wanted.map(({ volume_id }) => volume_id), wanted.map(({ mount_path }) => mount_path)];
  if (new Set(ids).size < ids.length) throw new ServiceError('validation_error', 'a volume is named twice');
  if (new Set(paths).size < paths.length) throw new ServiceError('validation_error', 'two volumes have one mount_path');
}

export class MachineVolumes {
  readonly #machineId: string;
  readonly #store: DataVolumes;
  readonly #book: VolumeBook;
  readonly #log: VolumeLog;

  constructor(machineId: string, store: DataVolumes, book: VolumeBook, log: VolumeLog) {
    this.#machineId = machineId;
    this.#store = store;
    this.#book = book;
    this.#log = log;
  }

  get isEmpty(): boolean {
    return this.#book.read().length === 0;
  }

  /** Sets the volumes of a machine without a VM. They are plugged in at its next start. */
  assign(wanted: readonly MachineVolume[]): void {
    // Most machines have no volumes. Do not write their record for nothing.
    if (wanted.length === 0 && this.isEmpty) return;
    this.#book.note(
      wanted.map(({ volume_id, mount_path }, slot) => ({
        volumeId: volume_id,
        slot,
        path: mount_path,
        isMounted: false,
      })),
    );
  }

  /**
   * Plugs all volumes of the machine into a VM that has just started, and mounts them. Throws `conflict` with the
   * volume and the reason when a volume cannot be used, and `host_unavailable` when the VM or its guest fails. The
   * caller must then end the VM.
   */
  async plugAll(vm: Vm, findGuest: FindGuest, abort: AbortSignal): Promise<void> {
    for (const volume of inMountOrder(this.#book.read())) {
      abort.throwIfAborted();
      try {
        await this.#plug(volume, vm, await findGuest());
      } catch (error) {
        throw startFailure(volume, error);
      }
    }
  }

  /**
   * Changes the volumes of a running machine to `wanted`: detaches first, then attaches. Throws the guest's `conflict`
   * when a volume to detach is busy; that volume stays mounted. Throws like {@link plugAll} when an attach fails, and
   * undoes that attach. Changes made before the error stay.
   */
  async bringTo(wanted: readonly MachineVolume[], vm: Vm, findGuest: FindGuest): Promise<void> {
    const isWanted = (volume: AttachedVolume) =>
      volume.isMounted &&
      wanted.some(({ volume_id, mount_path }) => volume_id === volume.volumeId && mount_path === volume.path);
    for (const volume of inMountOrder(this.#book.read()).reverse())
      if (!isWanted(volume)) await this.#unplug(volume, vm, await findGuest());
    const has = new Set(this.#book.read().map(({ volumeId }) => volumeId));
    const missing = wanted
      .filter(({ volume_id }) => !has.has(volume_id))
      .map(({ volume_id, mount_path }) => ({ volumeId: volume_id, path: mount_path }));
    for (const volume of inMountOrder(missing)) await this.#add(volume, vm, await findGuest());
  }

  /**
   * After a restart of the agent, asks QEMU which volumes the VM has, and removes all other volumes from the record. If
   * QEMU does not answer, assumes that the VM has all recorded volumes.
   */
  async takeUp(vm: Vm): Promise<void> {
    try {
      removeRunLinks(vm.runDir);
      if (!this.isEmpty) await this.#forgetAbsent(vm, await vm.pluggedDisks());
    } catch (err) {
      this.#log.warn({ machine_id: this.#machineId, err }, 'what volumes a machine has was not found out');
    }
    for (const { volumeId } of this.#book.read()) this.#tryTakeAgain(volumeId);
  }

  /** Releases all volumes after the VM has ended. They stay assigned to the machine for its next start. */
  letGo(): void {
    const volumes = this.#book.read();
    for (const { volumeId } of volumes) {
      try {
        this.#store.giveBack(volumeId, this.#machineId);
      } catch (err) {
        this.#log.warn({ machine_id: this.#machineId, volume_id: volumeId, err }, 'a volume was not given back');
      }
    }
    if (volumes.some(({ isMounted }) => isMounted))
      this.#book.note(volumes.map((one) => ({ ...one, isMounted: false })));
  }

  async #add(volume: { volumeId: string; path: string }, vm: Vm, guest: Guest): Promise<void> {
    const volumes = this.#book.read();
    const slot = freeSlot(volumes);
    const added = { ...volume, slot, isMounted: false };
    this.#book.save([...volumes, added]);
    try {
      await this.#plug(added, vm, guest);
    } catch (error) {
      // Only a refusal by the guest proves that the volume is not mounted, so undo the attach only then.
      if (error instanceof ServiceError) await this.#withdraw(added, vm, guest);
      throw failure(error);
    }
  }

  async #plug(volume: AttachedVolume, vm: Vm, guest: Guest): Promise<void> {
    const { volumeId, slot, path } = volume;
    const file = await this.#store.take(volumeId, this.#machineId);
    try {
      await vm.plugDisk({ slot, serial: volumeId, file });
    } catch (cause) {
      throw new ServiceError('host_unavailable', `volume ${volumeId} could not be plugged in: ${textOf(cause)}`, {
        retryAfterSec: 5,
        cause,
      });
    }
    await guest.mountVolume({ volumeId, slot, path });
    this.#book.note(this.#with({ ...volume, isMounted: true }));
  }

  async #unplug(volume: AttachedVolume, vm: Vm, guest: Guest): Promise<void> {
    this.#book.note(this.#with({ ...volume, isMounted: false }));
    try {
      await guest.unmountVolume(volume.volumeId);
    } catch (error) {
      // When the guest refuses, the volume is still mounted, so record it as mounted again.
      if (error instanceof ServiceError) this.#book.note(this.#with(volume));
      throw failure(error);
    }
    await this.#takeOut(volume, vm);
  }

  async #takeOut(volume: AttachedVolume, vm: Vm): Promise<void> {
    try {
      await vm.unplugDisk(volume.slot);
      this.#store.giveBack(volume.volumeId, this.#machineId);
    } catch (error) {
      throw failure(error);
    }
    this.#forget(volume);
  }

  /**
   * Removes volumes from the record that are not plugged into the VM, because another machine may use them by now. Runs
   * before this agent has claimed any volume for the machine.
   */
  async #forgetAbsent(vm: Vm, plugged: ReadonlyMap<number, string>): Promise<void> {
    for (const volume of this.#book.read()) {
      if (plugged.get(volume.slot) === volume.volumeId) continue;
      if (plugged.has(volume.slot)) await vm.unplugDisk(volume.slot);
      this.#forget(volume);
    }
  }

  #forget({ volumeId }: AttachedVolume): void {
    this.#book.note(this.#book.read().filter((one) => one.volumeId !== volumeId));
  }

  #tryTakeAgain(volumeId: string): void {
    try {
      this.#store.takeAgain(volumeId, this.#machineId);
    } catch (err) {
      this.#log.warn({ machine_id: this.#machineId, volume_id: volumeId, err }, 'a volume is in two machines');
    }
  }

  /**
   * Undoes a failed attach. If that fails too, the volume stays in the record, so that a later change can remove it.
   */
  async #withdraw(volume: AttachedVolume, vm: Vm, guest: Guest): Promise<void> {
    try {
      await guest.unmountVolume(volume.volumeId);
      await this.#takeOut(volume, vm);
    } catch (err) {
      const details = { machine_id: this.#machineId, volume_id: volume.volumeId, err };
      this.#log.warn(details, 'a volume that could not be attached was not taken out again');
    }
  }

  #with(changed: AttachedVolume): AttachedVolume[] {
    return this.#book.read().map((one) => (one.volumeId === changed.volumeId ? changed : one));
  }
}

/** Sorts volumes so that a mount point comes before mount points inside it. */
function inMountOrder<T extends { path: string }>(volumes: readonly T[]): T[] {
  return volumes.toSorted((one, other) => (one.path < other.path ? -1 : 1));
}

function freeSlot(volumes: readonly AttachedVolume[]): number {
  const taken = new Set(volumes.map(({ slot }) => slot));
  for (let slot = 0; slot < VOLUME_BOUNDS.perMachine; slot++) if (!taken.has(slot)) return slot;
  throw new ServiceError('conflict', `a machine has at most ${VOLUME_BOUNDS.perMachine} volumes`);
}

/** Turns an unknown error into `host_unavailable`, because it comes from the VM or its guest, not from our code. */
function failure(error: unknown): Error {
  if (error instanceof ServiceError) return error;
  return new ServiceError('host_unavailable', `the machine could not be changed: ${textOf(error)}`, {
    retryAfterSec: 5,
    cause: error,
  });
}

/**
 * Adds the volume and its mount path to an error of a start. Turns `validation_error` into `conflict`: a start request
 * does not name volumes, so a volume that cannot be mounted does not make the request invalid.
 */
function startFailure({ volumeId, path }: AttachedVolume, error: unknown): Error {
  const { code, message, retryAfterSec } = failure(error) as ServiceError;
  const known = code === 'validation_error' ? 'conflict' : code;
  return new ServiceError(known, `volume ${volumeId} cannot be mounted at ${path}: ${message}`, {
    ...(retryAfterSec === undefined ? {} : { retryAfterSec }),
    cause: error,
  });
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
