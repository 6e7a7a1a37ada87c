// Maintains a session with the guest agent of a running machine. The start of the machine provides the first session.
// When a session breaks, a new one is opened, until the link is closed.
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Guest } from '../guest/guest.ts';
import type { Vm } from '../hypervisor/driver.ts';

const HANDSHAKE_TIMEOUT_MS = 5000;
const FIRST_RETRY_MS = 20;
const LONGEST_RETRY_MS = 2000;
/**
 * A shorter session counts as a failed attempt, so the pause before the next attempt grows. Otherwise a hostile guest
 * could keep the host busy by ending every session immediately.
 */
const LASTING_SESSION_MS = 2000;
/** How long a request waits while a new session is being opened. */
const WAIT_FOR_SESSION_MS = 10_000;

export class GuestLink {
  readonly #vm: Vm;
  readonly #onSession: (guest: Guest) => Promise<void>;
  readonly #onError: (error: unknown) => void;
  readonly #closed = new AbortController();
  #pauseMs = 0;
  #session: Promise<Guest>;

  /**
   * `onSession` runs at the start of each session that the link opens, before others may use the session. `onError`
   * gets the error of each failed try. `first` is an open session; without it the link opens one.
   */
  constructor(vm: Vm, onSession: (guest: Guest) => Promise<void>, onError: (error: unknown) => void, first?: Guest) {
    this.#vm = vm;
    this.#onError = onError;
    this.#onSession = onSession;
    this.#session = first ? Promise.resolve(first) : this.#open();
    void this.#keep();
  }

  /**
   * Returns the current session, or waits for a new one. Throws `host_unavailable` when the guest does not answer in
   * time.
   */
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

  /** Ends the current session, so that the link opens a new one. */
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
      // The guest's port accepts only one session at a time, so close this session. Otherwise no other could be opened.
      close();
      throw error;
    } finally {
      this.#closed.signal.removeEventListener('abort', close);
    }
  }

  /**
   * Waits before an attempt to open a session: not before the first attempt, then twice as long each time. A session
   * that lasts resets the pause.
   */
  async #pause(): Promise<void> {
    const pauseMs = this.#pauseMs;
    this.#pauseMs = Math.min(Math.max(pauseMs * 2, FIRST_RETRY_MS), LONGEST_RETRY_MS);
    if (pauseMs > 0) await delay(pauseMs, undefined, { signal: this.#closed.signal, ref: false }).catch(() => {});
  }
}
