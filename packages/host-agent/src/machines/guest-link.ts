// Keeps a session with a running machine's guest agent: the first one comes from the boot, a broken one is opened anew
// until the link is closed.
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Guest } from '../guest/guest.ts';
import type { Vm } from '../hypervisor/driver.ts';

const HANDSHAKE_TIMEOUT_MS = 5000;
const FIRST_RETRY_MS = 20;
const LONGEST_RETRY_MS = 2000;
/** A session shorter than this counts as one that could not be opened, or a guest could keep the host busy. */
const LASTING_SESSION_MS = 2000;
/** How long a request waits for a session that is just being opened anew. */
const WAIT_FOR_SESSION_MS = 10_000;

export class GuestLink {
  readonly #vm: Vm;
  readonly #onSession: (guest: Guest) => Promise<void>;
  readonly #onError: (error: unknown) => void;
  readonly #closed = new AbortController();
  #pauseMs = 0;
  #session: Promise<Guest>;

  /** `onSession` runs at the start of every session, before anyone else may use it; `onError` hears why one could not be opened. */
  constructor(vm: Vm, onSession: (guest: Guest) => Promise<void>, onError: (error: unknown) => void, first?: Guest) {
    this.#vm = vm;
    this.#onError = onError;
    this.#onSession = onSession;
    this.#session = first ? Promise.resolve(first) : this.#open();
    void this.#keep();
  }

  /** The session of the moment. Throws `host_unavailable` when the guest does not answer. */
  async guest(): Promise<Guest> {
    const timer = new AbortController();
    const timeout = delay(WAIT_FOR_SESSION_MS, undefined, { signal: timer.signal }).then(
      () => undefined,
      () => undefined,
    );
    const guest = await Promise.race([this.#session.catch(() => undefined), timeout]);
    timer.abort();
    if (guest) return guest;
    throw new ServiceError('host_unavailable', 'the machine runs, but its guest agent does not answer', {
      retryAfterSec: 5,
    });
  }

  /** Ends the session of the moment, so that a new one begins. */
  renew(): void {
    this.#session.then(
      (guest) => guest.close(),
      () => {},
    );
  }

  close(): void {
    this.#closed.abort();
    this.renew();
  }

  async #keep(): Promise<void> {
    for (;;) {
      const guest = await this.#session.catch(() => undefined);
      const openedAt = performance.now();
      await guest?.closed;
      if (this.#closed.signal.aborted) return;
      if (performance.now() - openedAt > LASTING_SESSION_MS) this.#pauseMs = 0;
      this.#session = this.#open();
    }
  }

  async #open(): Promise<Guest> {
    for (;;) {
      await this.#pause();
      this.#closed.signal.throwIfAborted();
      try {
        return await this.#openOnce();
      } catch (error) {
        this.#onError(error);
      }
    }
  }

  async #openOnce(): Promise<Guest> {
    const handshakeTime = AbortSignal.timeout(HANDSHAKE_TIMEOUT_MS);
    const guest = await this.#vm.connectGuest(AbortSignal.any([this.#closed.signal, handshakeTime]));
    const close = () => guest.close();
    this.#closed.signal.addEventListener('abort', close);
    try {
      await this.#onSession(guest);
      return guest;
    } catch (error) {
      // The port takes one session at a time: left open, this one would be the last.
      close();
      throw error;
    } finally {
      this.#closed.signal.removeEventListener('abort', close);
    }
  }

  /** Nothing before the first try; longer after each one until a session lasts. */
  async #pause(): Promise<void> {
    const pauseMs = this.#pauseMs;
    this.#pauseMs = Math.min(Math.max(pauseMs * 2, FIRST_RETRY_MS), LONGEST_RETRY_MS);
    if (pauseMs > 0) await delay(pauseMs, undefined, { signal: this.#closed.signal, ref: false }).catch(() => {});
  }
}
