// Bounds what strangers on the network can take from the agent before they have proved who they are: time, memory, and
// CPU time for handshakes. The control plane must get through while a stranger opens connections as fast as it can.
import type { Socket } from 'node:net';

/** How long a handshake may take. It takes milliseconds, and over the slowest network a second. */
const HANDSHAKE_MS = 5_000;
/** How many handshakes may be under way. Each takes about 45 KB of memory. */
const UNDER_WAY_MAX = 256;
/**
 * How many handshakes of one address may fail in a row, and how many more each second. A handshake takes one to three
 * milliseconds of CPU time, and refusing a connection at once 0.05 ms.
 */
const FAILURES_MAX = 20;
const FAILURES_PER_SEC = 2;
/** How many addresses with failures are remembered. */
const ADDRESSES_MAX = 10_000;

type Failures = { count: number; at: number };

export class Handshakes {
  /** The connections whose handshake is under way, oldest first, and the address of each. */
  readonly #underWay = new Map<Socket, string>();
  readonly #failures = new Map<string, Failures>();
  readonly #now: () => number;

  /** `now`: milliseconds of a clock that never goes back. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  get underWay(): number {
    return this.#underWay.size;
  }

  /**
   * Decides whether a new connection may begin a handshake. If not, closes it. A connection that is not passed to
   * `succeeded` in time is closed. When too many are under way, closes the oldest one of the address with the most.
   */
  admit(socket: Socket): boolean {
    const address = socket.remoteAddress ?? '';
    if (this.#isFailing(address)) {
      socket.resetAndDestroy();
      return false;
    }
    this.#underWay.set(socket, address);
    const timer = setTimeout(() => this.#underWay.has(socket) && socket.destroy(), HANDSHAKE_MS).unref();
    socket.once('close', () => {
      clearTimeout(timer);
      if (this.#underWay.delete(socket)) this.#noteFailure(address);
    });
    if (this.#underWay.size > UNDER_WAY_MAX) this.#giveUp(this.#oldestOfBusiest());
    return !socket.destroyed;
  }

  /** The peer of the connection is known now. */
  succeeded(socket: Socket): void {
    const address = this.#underWay.get(socket);
    if (address === undefined) return;
    this.#underWay.delete(socket);
    this.#failures.delete(address);
  }

  /** Closes a connection that did nothing wrong, so this is no failure of its address. */
  #giveUp(socket: Socket | undefined): void {
    if (socket === undefined) return;
    this.#underWay.delete(socket);
    socket.destroy();
  }

  #oldestOfBusiest(): Socket | undefined {
    const oldest = new Map<string, { socket: Socket; count: number }>();
    for (const [socket, address] of this.#underWay) {
      const found = oldest.get(address);
      if (found === undefined) oldest.set(address, { socket, count: 1 });
      else found.count += 1;
    }
    return [...oldest.values()].sort((one, other) => other.count - one.count)[0]?.socket;
  }

  #isFailing(address: string): boolean {
    return this.#failuresNow(address) >= FAILURES_MAX;
  }

  #failuresNow(address: string): number {
    const { count, at } = this.#failures.get(address) ?? { count: 0, at: 0 };
    return Math.max(0, count - ((this.#now() - at) / 1000) * FAILURES_PER_SEC);
  }

  #noteFailure(address: string): void {
    const count = this.#failuresNow(address) + 1;
    // Deleted first, so that the addresses are in the order of their last failure.
    this.#failures.delete(address);
    this.#failures.set(address, { count, at: this.#now() });
    const [first] = this.#failures.keys();
    if (this.#failures.size > ADDRESSES_MAX && first !== undefined) this.#failures.delete(first);
  }
}
