// Chooses the addresses of machines and of clones in the pool, so that no two have the same one. A clone also gets new
// names. Its lease passes through these states:
//
//   waiting ──claim──▶ claimed ──release──▶ over
//      └──────────────void──────────────────▲
//
// - waiting: the clone waits in the pool and has the address and the names.
// - claimed: a machine that starts with the clone takes them over.
// - over: the lease no longer holds the address. After `release`, the machine's record holds it, or the clone is gone.
//   After `void`, the machine that asked for the address gets it, and the clone cannot pass it on.
import { randomUUID } from 'node:crypto';
import type { AddressCounter } from './address-counter.ts';

export class AddressLeases {
  readonly subnet: string;
  readonly #counter: AddressCounter;
  readonly #leases = new Set<CloneLease>();
  #addressesInUse: () => Iterable<string> = () => [];

  constructor(counter: AddressCounter) {
    this.subnet = counter.subnet;
    this.#counter = counter;
  }

  /** Excludes the addresses that `addresses` returns from all later choices. Call it before the first lease. */
  exclude(addresses: () => Iterable<string>): void {
    this.#addressesInUse = addresses;
  }

  /** Returns a free address. Throws `fleet_capacity` when there is none, or when the disk is full. */
  choose(): string {
    const leased = [...this.#leases].map(({ address }) => address);
    return this.#counter.choose(new Set([...this.#addressesInUse(), ...leased]));
  }

  /** Leases a free address to a clone. Throws the errors of {@link choose}. */
  leaseToClone(): CloneLease {
    const lease: CloneLease = new CloneLease(this.choose(), () => this.#leases.delete(lease));
    this.#leases.add(lease);
    return lease;
  }

  /**
   * Makes an address free that a waiting clone has. Returns false when a machine is just starting with a clone of this
   * address, so the address cannot be had.
   */
  takeBack(address: string): boolean {
    for (const lease of this.#leases) if (lease.address === address && !lease.void()) return false;
    return true;
  }
}

export class CloneLease {
  readonly address: string;
  /** The UUID whose digits are in the clone's /etc/machine-id. No other lease and no machine has the same. */
  readonly systemId: string = randomUUID();
  /** `m-` and the last 12 characters of `systemId`, which are random. Short enough for a shell prompt. */
  readonly hostname = `m-${this.systemId.slice(-12)}`;
  readonly #onEnd: () => void;
  #state: 'waiting' | 'claimed' | 'over' = 'waiting';

  constructor(address: string, onEnd: () => void) {
    this.address = address;
    this.#onEnd = onEnd;
  }

  /** Returns whether the clone may keep its address and its names as a machine. */
  claim(): boolean {
    if (this.#state !== 'waiting') return false;
    this.#state = 'claimed';
    return true;
  }

  /** Ends the lease unless it was claimed. Returns whether it is over. */
  void(): boolean {
    if (this.#state === 'waiting') this.release();
    return this.#state === 'over';
  }

  /** Ends the lease. Call it when the clone is gone, or when the record of its machine has the address. */
  release(): void {
    this.#state = 'over';
    this.#onEnd();
  }
}
