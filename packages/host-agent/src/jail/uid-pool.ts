// Uids for VMs: each has one of its own while it lives, out of a range that belongs to the data directory and to no
// account. The one that was free for the longest time is taken, so that what an ended VM may have left behind (a file, an
// entry of the kernel) stays nobody's for as long as possible.
import { homeId } from '../network/names.ts';

/** VMs of one host, at most. */
export const UIDS_PER_HOME = 65_536;

/**
 * The first range; systemd's containers end below it, and 0x7ffe0000 is the last range it reserves for itself
 * (systemd docs/UIDS-GIDS.md). Some programs take a uid above 2^31 for a negative number.
 */
const FIRST_BASE = 0x7000_0000;
const END_OF_BASES = 0x7ffe_0000;

export type UidRange = { first: number; last: number };

/** The uids (and gids) of VMs of the service in `home`, for rules about all of them. */
export function uidRange(home: string): UidRange {
  const ranges = (END_OF_BASES - FIRST_BASE) / UIDS_PER_HOME;
  const first = FIRST_BASE + (Number.parseInt(homeId(home), 16) % ranges) * UIDS_PER_HOME;
  return { first, last: first + UIDS_PER_HOME - 1 };
}

export class UidPool {
  readonly #range: UidRange;
  /** In the order in which they became free. */
  readonly #free: Set<number>;
  readonly #taken = new Map<string, number>();

  constructor(range: UidRange) {
    this.#range = range;
    this.#free = new Set(Array.from({ length: range.last - range.first + 1 }, (_, index) => range.first + index));
  }

  /** The VM's uid; the same one however often it is asked for. Throws when all are taken. */
  take(vmId: string): number {
    const own = this.#taken.get(vmId);
    if (own !== undefined) return own;
    const [uid] = this.#free;
    if (uid === undefined) throw new Error(`all ${this.#free.size + this.#taken.size} uids for VMs are taken`);
    this.#free.delete(uid);
    this.#taken.set(vmId, uid);
    return uid;
  }

  /** An earlier agent gave `uid` to the VM. Throws when it is not of this range or another VM has it. */
  takeAgain(vmId: string, uid: number): void {
    if (this.#taken.get(vmId) === uid) return;
    if (uid < this.#range.first || uid > this.#range.last) throw new Error(`uid ${uid} is not one for VMs`);
    if (!this.#free.delete(uid)) throw new Error(`uid ${uid} of VM ${vmId} belongs to another VM`);
    this.#taken.set(vmId, uid);
  }

  giveBack(vmId: string): void {
    const uid = this.#taken.get(vmId);
    if (uid === undefined) return;
    this.#taken.delete(vmId);
    this.#free.add(uid);
  }
}
