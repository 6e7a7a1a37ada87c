// Chooses the addresses of new machines. A freed address is used again as late as possible, also after a restart of the
// agent, because other machines may still try to reach the machine that had it.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { readRecord, writeRecord } from '../storage/record-file.ts';
import { addressAt, countAddresses, nextFreeCounter } from './addresses.ts';

/**
 * The file is written once for this many addresses, so that few creates wait for the disk. After a restart the
 * addresses that are left of this batch are skipped.
 */
const STEP = 32;

type CounterRecord = { next: number };

export class AddressCounter {
  readonly subnet: string;
  readonly #path: string;
  #next: number;
  /** The counter in the file, at which the next agent begins. */
  #recorded: number;

  /** `subnet` in CIDR notation; `path` is the file that the counter is kept in. */
  constructor(subnet: string, path: string) {
    this.subnet = subnet;
    this.#path = path;
    this.#next = readNext(path);
    this.#recorded = this.#next;
  }

  /**
   * Returns an address that is not in `taken`. Throws `fleet_capacity` when there is none, or when the disk is full.
   */
  choose(taken: ReadonlySet<string>): string {
    const counter = nextFreeCounter(this.subnet, this.#next, taken);
    if (counter === undefined)
      throw new ServiceError(
        'fleet_capacity',
        `the host has no free address: its subnet ${this.subnet} is limited to ${countAddresses(this.subnet)} machines, stopped ones included`,
      );
    const next = (counter + 1) % countAddresses(this.subnet);
    if (next < this.#next || next > this.#recorded) this.#record(next + STEP);
    this.#next = next;
    return addressAt(this.subnet, counter);
  }

  #record(next: number): void {
    writeRecord(this.#path, { next } satisfies CounterRecord);
    this.#recorded = next;
  }
}

/**
 * Returns the counter in the file, or 0. A power cut can leave the file empty. The host has no VMs then, so it does not
 * matter where the counter begins.
 */
function readNext(path: string): number {
  try {
    const next = readRecord<CounterRecord>(path)?.next;
    return Number.isSafeInteger(next) && next !== undefined && next >= 0 ? next : 0;
  } catch {
    return 0;
  }
}
