// Ends open streams whose credential is no longer valid. A request checks its credential only when it begins, but a
// stream may run for hours. So this module checks the credentials of all open streams of this replica again, twice a
// second, with one query for keys and one for sessions. A stream ends within a second after its API key was revoked or
// expired or its session ended, whichever replica handled that.
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { findValidKeys } from '../api-keys/store.ts';
import type { Db } from '../db/database.ts';
import type { Caller } from '../http/route-config.ts';
import type { Log } from '../log.ts';
import { findValidSessions } from './store.ts';

const CHECK_MS = 500;
/** After this many failed checks in a row (the database does not answer) all streams end. Clients resume them later. */
const FAILED_CHECKS_MAX = 10;

export type Watched = {
  /** Aborted when the credential is no longer valid. */
  signal: AbortSignal;
  /** Ends the watch. */
  stop(): void;
};

export class CredentialWatch {
  readonly #db: Db;
  readonly #log: Log;
  readonly #closing: AbortSignal;
  /** One controller for each stream, grouped by the id of the credential. */
  readonly #watched = {
    key: new Map<string, Set<AbortController>>(),
    session: new Map<string, Set<AbortController>>(),
  };
  #isChecking = false;

  /** `closing` ends the checks. */
  constructor(db: Db, log: Log, closing: AbortSignal) {
    this.#db = db;
    this.#log = log;
    this.#closing = closing;
  }

  /**
   * Watches the credential of a request until `stop` is called. Aborts `controller` with an `unauthenticated` as the
   * reason when the credential is no longer valid.
   */
  watch({ via, credentialId }: Pick<Caller, 'via' | 'credentialId'>, controller = new AbortController()): Watched {
    const watched = this.#watched[via];
    const controllers = watched.get(credentialId) ?? new Set();
    watched.set(credentialId, controllers.add(controller));
    if (!this.#isChecking) void this.#checkWhileWatching();
    const stop = () => {
      controllers.delete(controller);
      if (controllers.size === 0 && watched.get(credentialId) === controllers) watched.delete(credentialId);
    };
    return { signal: controller.signal, stop };
  }

  async #checkWhileWatching(): Promise<void> {
    this.#isChecking = true;
    let failures = 0;
    while (this.#watched.key.size + this.#watched.session.size > 0) {
      await delay(CHECK_MS, undefined, { signal: this.#closing, ref: false }).catch(() => undefined);
      if (this.#closing.aborted) return;
      try {
        await Promise.all([this.#check('key', findValidKeys), this.#check('session', findValidSessions)]);
        failures = 0;
      } catch (error) {
        failures++;
        this.#log.warn({ err: error }, 'the credentials of open streams could not be checked');
        if (failures >= FAILED_CHECKS_MAX) for (const via of ['key', 'session'] as const) this.#end(via, new Set());
      }
    }
    this.#isChecking = false;
  }

  async #check(via: Caller['via'], findValid: typeof findValidKeys): Promise<void> {
    const ids = [...this.#watched[via].keys()];
    if (ids.length === 0) return;
    const valid = new Set(await findValid(this.#db, ids));
    // If a stream opened after the query began, the query did not check its credential; the next check will.
    this.#end(via, new Set([...this.#watched[via].keys()].filter((id) => valid.has(id) || !ids.includes(id))));
  }

  #end(via: Caller['via'], stillValid: ReadonlySet<string>): void {
    for (const [id, controllers] of this.#watched[via]) {
      if (stillValid.has(id)) continue;
      this.#watched[via].delete(id);
      for (const controller of controllers) controller.abort(credentialEnded());
    }
  }
}

const credentialEnded = () => new ServiceError('unauthenticated', 'The credential has ended.');
