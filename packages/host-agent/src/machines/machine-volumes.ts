// What a machine has of data volumes, and bringing it to what it should have. The machine's record is written before a
// volume is plugged in and after it is unplugged, so that it names all that QEMU may have; another agent asks QEMU which
// of them it has. A volume that was not seen through is taken out and plugged in anew, so no half step is ever built on.
//
//   plug:    record ─▶ volume taken (formatted) ─▶ disk of the VM ─▶ mounted ─▶ recorded as mounted
//   unplug:  recorded as in doubt ─▶ unmounted ─▶ no disk of the VM ─▶ volume given back ─▶ record
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineVolume } from '@sandbar/contract/host-api.ts';
import { VOLUME_BOUNDS } from '@sandbar/contract/volume.ts';
import type { Guest, VolumeMount } from '../guest/guest.ts';
import type { Vm } from '../hypervisor/driver.ts';
import { removeRunLinks } from '../jail/run-links.ts';
import type { DataVolumes } from '../storage/data-volumes.ts';

/** A volume of a machine. `isMounted`: the guest has said so; otherwise it may be plugged in, mounted, both or neither. */
export type AttachedVolume = VolumeMount & { isMounted: boolean };

/** The list in the machine's record. `save` throws on a full disk; `note` then keeps the change in memory alone. */
export type VolumeBook = {
  read(): readonly AttachedVolume[];
  save(volumes: readonly AttachedVolume[]): void;
  note(volumes: readonly AttachedVolume[]): void;
};

type VolumeLog = { warn(details: object, message: string): void };
/** Opens or finds the session with the guest agent. Throws `host_unavailable`. */
type FindGuest = () => Promise<Guest>;

/** Throws `validation_error` when a machine cannot have these together. */
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

  /** What a machine without a VM has from its next start on. */
  assign(wanted: readonly MachineVolume[]): void {
    // As of nearly every machine: not worth writing its record.
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
   * Gives a VM that just started all volumes of the machine. Throws `conflict` that says which volume it cannot have, and why;
   * `host_unavailable` when the VM or its guest does not do it. The VM is to be ended then.
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
   * Brings a machine that runs to what it should have; what has to go goes first. Throws the guest's `conflict` for one that is
   * busy, which stays as it was, and what {@link plugAll} throws, when nothing is left of the one that failed. What was
   * done before stays done.
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
   * Finds out what a VM of an earlier agent has. What it does not have is not the machine's any more; of one that does
   * not say, it is all taken to be there.
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

  /** The VM is gone: nobody has the volumes until the next start. */
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
      // Only a refusal says for certain that the guest has not mounted it.
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
      // A refusal changes nothing.
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

  /** Nobody has taken the volumes yet, and what is absent here another machine may have by now. */
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

  /** Undoes a plug that failed. What cannot be undone stays in the record, for the next time. */
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

/** A mount point before what is mounted below it. */
function inMountOrder<T extends { path: string }>(volumes: readonly T[]): T[] {
  return volumes.toSorted((one, other) => (one.path < other.path ? -1 : 1));
}

function freeSlot(volumes: readonly AttachedVolume[]): number {
  const taken = new Set(volumes.map(({ slot }) => slot));
  for (let slot = 0; slot < VOLUME_BOUNDS.perMachine; slot++) if (!taken.has(slot)) return slot;
  throw new ServiceError('conflict', `a machine has at most ${VOLUME_BOUNDS.perMachine} volumes`);
}

/** A VM or guest that fails is no bug of ours. */
function failure(error: unknown): Error {
  if (error instanceof ServiceError) return error;
  return new ServiceError('host_unavailable', `the machine could not be changed: ${textOf(error)}`, {
    retryAfterSec: 5,
    cause: error,
  });
}

/** At a start, what is wrong with a volume is not wrong with the request. */
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
