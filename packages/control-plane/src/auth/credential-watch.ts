// Ends open streams whose credential is no longer valid. A request checks its credential only when it begins, but a
// stream may run for hours. So this module checks the credentials of all open streams of this replica again, twice a
// second, with one query for keys, one for sessions and one for accounts. A stream ends within a second after its API
// key was revoked or expired, its session ended or its account was deleted, whichever replica handled that. When the
// account is suspended, the streams that can change something end, and those that only read go on.
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { findLiveAccounts } from '../accounts/store.ts';
import { accountIsSuspended } from '../accounts/suspended.ts';
import { findValidKeys } from '../api-keys/store.ts';
import type { Db } from '../db/database.ts';
import type { Caller } from '../http/route-config.ts';
import type { Log } from '../log.ts';
import { findValidSessions } from './store.ts';

const CHECK_MS = 500;
/** After this many failed checks in a row (the database does not answer) all streams end. Clients resume them later. */
const FAILED_CHECKS_MAX = 10;

/** A credential that is still valid. `isSuspended`: whether its account is suspended. */
export type ValidCredential = { id: string; isSuspended: boolean };

/** What permits a stream: a key, a session, or only the account of the machine, such as for a public port. */
export type Watchable = { via: Caller['via'] | 'account'; credentialId: string };

type Stream = { controller: AbortController; does: 'read' | 'change' };

const QUERIES = { key: findValidKeys, session: findValidSessions, account: findLiveAccounts };
const KINDS = ['key', 'session', 'account'] as const;

export type Watched = {
  /** Aborted, with a ServiceError as the reason, when the stream has to end. */
  signal: AbortSignal;
  /** Ends the watch. */
  stop(): void;
};

export class CredentialWatch {
  readonly #db: Db;
  readonly #log: Log;
  readonly #closing: AbortSignal;
  /** The open streams, grouped by the id of the credential. */
  readonly #watched = {
    key: new Map<string, Set<Stream>>(),
    session: new Map<string, Set<Stream>>(),
    account: new Map<string, Set<Stream>>(),
  };
  #isChecking = false;

  /** `closing` ends the checks. */
  constructor(db: Db, log: Log, closing: AbortSignal) {
    this.#db = db;
    this.#log = log;
    this.#closing = closing;
  }

  /**
   * Watches the credential of a stream until `stop` is called. Aborts `controller` with an `unauthenticated` as the
   * reason when the credential is no longer valid, and with a `forbidden` when the stream can change something and the
   * account is suspended.
   */
  watch({ via, credentialId }: Watchable, does: Stream['does'], controller = new AbortController()): Watched {
    const watched = this.#watched[via];
    const stream = { controller, does };
    const streams = watched.get(credentialId) ?? new Set();
    watched.set(credentialId, streams.add(stream));
    if (!this.#isChecking) void this.#checkWhileWatching();
    const stop = () => {
      streams.delete(stream);
      if (streams.size === 0 && watched.get(credentialId) === streams) watched.delete(credentialId);
    };
    return { signal: controller.signal, stop };
  }

  async #checkWhileWatching(): Promise<void> {
    this.#isChecking = true;
    let failures = 0;
    while (KINDS.some((via) => this.#watched[via].size > 0)) {
      await delay(CHECK_MS, undefined, { signal: this.#closing, ref: false }).catch(() => undefined);
      if (this.#closing.aborted) return;
      try {
        await Promise.all(KINDS.map((via) => this.#check(via)));
        failures = 0;
      } catch (error) {
        failures++;
        this.#log.warn({ err: error }, 'the credentials of open streams could not be checked');
        if (failures >= FAILED_CHECKS_MAX) this.#endAll();
      }
    }
    this.#isChecking = false;
  }

  async #check(via: Watchable['via']): Promise<void> {
    // Only the streams that are open now, because the query does not check credentials that are watched later.
    const asked = new Map(this.#watched[via]);
    if (asked.size === 0) return;
    const rows = await QUERIES[via](this.#db, [...asked.keys()]);
    const isSuspended = new Map(rows.map((row) => [row.id, row.isSuspended]));
    for (const [id, streams] of asked) {
      if (!isSuspended.has(id)) end(streams, credentialEnded());
      else if (isSuspended.get(id)) end(changing(streams), accountIsSuspended());
    }
  }

  #endAll(): void {
    for (const via of KINDS) for (const streams of this.#watched[via].values()) end(streams, credentialEnded());
  }
}

const changing = (streams: ReadonlySet<Stream>): Stream[] => [...streams].filter(({ does }) => does === 'change');

/** Aborts streams. The code that opened a stream then calls `stop`, which removes it from the watch. */
function end(streams: Iterable<Stream>, reason: ServiceError): void {
  for (const { controller } of [...streams]) controller.abort(reason);
}

const credentialEnded = () => new ServiceError('unauthenticated', 'The credential has ended.');
