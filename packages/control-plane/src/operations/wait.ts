// Waits for an operation that another request, another replica or the reconciler performs.
import { type ErrorCode, ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../app.ts';
import { sleep } from '../concurrency.ts';
import type { OperationRow } from '../db/tables.ts';
import { HostUnavailable } from '../hosts/client.ts';
import { isShuttingDown } from './refusals.ts';
import { getOperation, hastenOperations } from './store.ts';

const FIRST_POLL_MS = 20;
const LONGEST_POLL_MS = 250;

type Waiting = {
  /** When to stop waiting, in milliseconds of `performance.now()`. */
  deadline: number;
  /**
   * If true, the wait throws when the current attempt fails, or the next attempt if none is running now. If false, the
   * wait continues after failed attempts.
   */
  failsWithAttempt: boolean;
};

/**
 * Waits for the end of an operation. Returns its finished row, or undefined when the row was deleted together with its
 * machine. If the operation is postponed, its next attempt is made now. `deadline`: in milliseconds of
 * `performance.now()`.
 *
 * Throws `conflict` with the name of the operation when the deadline passes; `host_unavailable` when no attempt is
 * running and the host is away; `shutting_down` when this process stops.
 */
export function waitForOperation(app: App, id: string, deadline: number): Promise<OperationRow | undefined> {
  return wait(app, id, { deadline, failsWithAttempt: false });
}

/**
 * Waits for the result of an operation and throws the refusal that it ended with. When its current attempt fails,
 * throws the error of that attempt; the operation is attempted again later, and a retry of the request can join it
 * again. Otherwise throws as `waitForOperation` does.
 */
export async function joinOperation(app: App, id: string, deadline: number): Promise<void> {
  const row = await wait(app, id, { deadline, failsWithAttempt: true });
  if (row?.error_code) throw failureOf(row);
}

async function wait(app: App, id: string, { deadline, failsWithAttempt }: Waiting): Promise<OperationRow | undefined> {
  let attempt: number | undefined;
  for (let pauseMs = FIRST_POLL_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_POLL_MS)) {
    const row = await getOperation(app.db, id);
    if (!row || row.finished_at !== null) return row;
    const isAtWork = row.claim_token !== null;
    if (!isAtWork && !hostsOf(row).every(app.hosts.isOperable)) throw new HostUnavailable(false);
    if (attempt === undefined) {
      attempt = isAtWork ? row.attempts : row.attempts + 1;
      if (!isAtWork) await hasten(app, id);
    }
    if (failsWithAttempt && !isAtWork && row.attempts >= attempt) throw failureOf(row);
    if (app.closing.aborted) throw isShuttingDown();
    if (performance.now() > deadline) throw stillBusy(row);
    await sleep(pauseMs, app.closing);
  }
}

/** The hosts that the operation needs: a move needs the old one and the new one. */
const hostsOf = ({ host_id, args }: OperationRow): string[] =>
  args.to_host_id === undefined ? [host_id] : [host_id, args.to_host_id];

async function hasten(app: App, id: string): Promise<void> {
  await hastenOperations(app.db, { id });
  app.reconcileSoon();
}

/** The codes of failures that often end within seconds. */
const AWAY: readonly ErrorCode[] = ['host_unavailable', 'database_unavailable'];

function failureOf({ error_code, last_error }: OperationRow): ServiceError {
  const code = error_code ?? 'internal_error';
  const options = AWAY.includes(code) ? { retryAfterSec: 2 } : {};
  return new ServiceError(code, last_error ?? 'The operation failed.', options);
}

const NAMES: Partial<Record<OperationRow['kind'], string>> = {
  create_volume: 'create of the volume',
  delete_volume: 'delete of the volume',
  delete_snapshot: 'delete of the snapshot',
  move: 'move to another host',
};

function stillBusy({ kind, last_error }: OperationRow): ServiceError {
  const why = last_error === null ? '' : ` Its last attempt failed: ${last_error}`;
  const detail = `Waited in vain for the ${NAMES[kind] ?? kind} that is under way. Retry later.${why}`;
  return new ServiceError('conflict', detail, { retryAfterSec: 5 });
}
