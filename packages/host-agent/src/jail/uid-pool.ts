// Assigns uids to VMs. Each VM has its own uid while it lives, from a range that belongs to this data directory and to
// no account. The pool goes once through the whole range before it uses a uid again, and skips uids that own a file. So
// nothing that an ended VM left (a disk, a kernel object) belongs to a new VM. The last two uids of the range are not
// for VMs: the name relay and the guest gateway run under them.
import { homeId } from '../network/names.ts';

/** Number of uids in the range of one data directory. Two of them are not for VMs. */
export const UIDS_PER_HOME = 65_536;

/**
 * Start of the first range. The uids of systemd's containers end below it, and systemd reserves its last range from
 * 0x7ffe0000 (systemd docs/UIDS-GIDS.md). Uids above 2^31 are avoided because some programs treat them as negative.
 */
const FIRST_BASE = 0x7000_0000;
const END_OF_BASES = 0x7ffe_0000;

export type UidRange = { first: number; last: number };

/**
 * Returns the range of uids (and gids) of the service in `home`: the uids of its VMs, and of its own processes that
 * parse what guests send. The firewall refuses all traffic of these uids, except the name relay's DNS messages
 * (network/rules.ts).
 */
export function uidRange(home: string): UidRange {
  const ranges = (END_OF_BASES - FIRST_BASE) / UIDS_PER_HOME;
  const first = FIRST_BASE + (Number.parseInt(homeId(home), 16) % ranges) * UIDS_PER_HOME;
  return { first, last: first + UIDS_PER_HOME - 1 };
}

/** Divides the range among the VMs, the name relay and the guest gateway. */
export function reservedUids(home: string): { vms: UidRange; nameRelay: number; gateway: number } {
  const { first, last } = uidRange(home);
  return { vms: { first, last: last - 2 }, nameRelay: last - 1, gateway: last };
}

export class UidPool {
  readonly #range: UidRange;
  readonly #ownersOfFiles: () => ReadonlySet<number>;
  /** Uids that no VM has and that owned no file at the last refill, in the order in which they will be used. */
  #free = new Set<number>();
  readonly #taken = new Map<string, number>();

  /** `ownersOfFiles`: returns the uids of the range that own a file of the data directory now. */
  constructor(range: UidRange, ownersOfFiles: () => ReadonlySet<number>) {
    this.#range = range;
    this.#ownersOfFiles = ownersOfFiles;
    this.#refill();
  }

  /**
   * Returns the VM's uid, the same uid on every call. A new VM gets a uid that owns no file, because the uid of an
   * ended VM may still own the disk of a stopped machine. Throws when no uid is left.
   */
  take(vmId: string): number {
    const own = this.#taken.get(vmId);
    if (own !== undefined) return own;
    if (this.#free.size === 0) this.#refill();
    const [uid] = this.#free;
    if (uid === undefined) throw new Error(`all uids for VMs are taken, ${this.#taken.size} of them by VMs`);
    this.#free.delete(uid);
    this.#taken.set(vmId, uid);
    return uid;
  }

  /**
   * Registers the uid that an earlier agent assigned to the VM. Throws when it is outside the range or belongs to
   * another VM.
   */
  takeAgain(vmId: string, uid: number): void {
    if (this.#taken.get(vmId) === uid) return;
    if (uid < this.#range.first || uid > this.#range.last) throw new Error(`uid ${uid} is not one for VMs`);
    if ([...this.#taken.values()].includes(uid)) throw new Error(`uid ${uid} of VM ${vmId} belongs to another VM`);
    this.#free.delete(uid);
    this.#taken.set(vmId, uid);
  }

  /** Releases the VM's uid. It is used again only after all others. */
  giveBack(vmId: string): void {
    this.#taken.delete(vmId);
  }

  #refill(): void {
    const used = new Set([...this.#ownersOfFiles(), ...this.#taken.values()]);
    const { first, last } = this.#range;
    const all = Array.from({ length: last - first + 1 }, (_, index) => first + index);
    this.#free = new Set(all.filter((uid) => !used.has(uid)));
  }
}
