// Assigns uids to VMs. Each VM has its own uid while it lives, from a range that belongs to this data directory and to
// no account. The pool assigns the uid that has been free for the longest time, so that leftovers of an ended VM (a
// file, a kernel entry) do not soon belong to a new VM.
import { homeId } from '../network/names.ts';

/** Most VMs that one host can have at a time. */
export const UIDS_PER_HOME = 65_536;

/**
 * Start of the first range. The uids of systemd's containers end below it, and systemd reserves its last range from
 * 0x7ffe0000 (systemd docs/UIDS-GIDS.md). Uids above 2^31 are avoided because some programs treat them as negative.
 */
const FIRST_BASE = 0x7000_0000;
const END_OF_BASES = 0x7ffe_0000;

export type UidRange = { first: number; last: number };

/**
 * Returns the range of uids (and gids) for the VMs of the service in `home`. Firewall rules use it to match all VMs.
 */
export function uidRange(home: string): UidRange {
  const ranges = (END_OF_BASES - FIRST_BASE) / UIDS_PER_HOME;
  const first = FIRST_BASE + (Number.parseInt(homeId(home), 16) % ranges) * UIDS_PER_HOME;
  return { first, last: first + UIDS_PER_HOME - 1 };
}

export class UidPool {
  readonly #range: UidRange;
  /** Free uids, in the order in which they became free. */
  readonly #free: Set<number>;
  readonly #taken = new Map<string, number>();

  constructor(range: UidRange) {
    this.#range = range;
    this.#free = new Set(Array.from({ length: range.last - range.first + 1 }, (_, index) => range.first + index));
  }

  /** Returns the VM's uid, the same one on every call. Throws when all uids are taken. */
  take(vmId: string): number {
    const own = this.#taken.get(vmId);
    if (own !== undefined) return own;
    const [uid] = this.#free;
    if (uid === undefined) throw new Error(`all ${this.#free.size + this.#taken.size} uids for VMs are taken`);
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
