// SQL of operations: one row says what is under way for a machine, a volume or a snapshot. It is written before anything is
// done, and finished in the transaction that records the result.
//
//   due --claim--> claimed, renewed every 3 s --finish--> finished (kept for an hour, for those who wait for the result)
//    ^                 |        \--nobody renews for 10 s: its process died--> due
//    \----postpone-----/
//
// A claim is no lock that blocks. Every write of the process that holds it names its token, so a process that lost its
// claim (it stalled, or the machine was deleted) fails at its next write, and overwrites nothing.
import { randomUUID } from 'node:crypto';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { type Insertable, type RawBuilder, sql } from 'kysely';
import type { App } from '../app.ts';
import type { Db, Tx } from '../db/database.ts';
import { statement } from '../db/statement.ts';
import type { OperationRow, OperationTable } from '../db/tables.ts';
import { ClaimLost } from './refusals.ts';

/** An operation that this process works on. */
export type Claimed = { operation: OperationRow; token: string };

/** True for operations that nobody works on, by the database's clock. */
export const isUnclaimed = sql<boolean>`(operations.claim_token is null or operations.claim_expires_at < now())`;

/** Written out, since PostgreSQL uses the index of these rows for a literal only. */
export const isNoExpiry = sql<boolean>`operations.kind <> 'expire'`;

const freshClaim = (ttlMs: number, token: string) => ({
  claim_token: token,
  claim_expires_at: sql<Date>`now() + ${ttlMs}::int * interval '1 millisecond'`,
});

export type NewOperation = Pick<
  Insertable<OperationTable>,
  'account_id' | 'host_id' | 'machine_id' | 'volume_id' | 'snapshot_id' | 'kind' | 'args' | 'actor'
>;

/** Writes down an operation that the caller works on from now on. */
export async function insertClaimed(app: App, tx: Tx, row: NewOperation): Promise<Claimed> {
  const token = randomUUID();
  const [operation] = await insertOperation(tx, row, token, app.config.timing.claimTtlMs);
  if (!operation) throw new Error('an operation was not written');
  return { operation, token };
}

const insertOperation = statement((db, row: NewOperation, token: string, ttlMs: number) =>
  db
    .insertInto('operations')
    .values({
      account_id: row.account_id,
      host_id: row.host_id,
      machine_id: row.machine_id,
      volume_id: row.volume_id,
      snapshot_id: row.snapshot_id,
      kind: row.kind,
      args: row.args,
      actor: row.actor,
      ...freshClaim(ttlMs, token),
      attempts: 1,
    })
    .returningAll(),
);

/** What an operation is about. */
export type Subject = { machineId?: string; volumeId?: string; snapshotId?: string };

/** The unfinished operations about any of these, locked until the transaction ends. An expiry is none of them. */
export function lockUnfinished(tx: Tx, { machineId, volumeId, snapshotId }: Subject): Promise<OperationRow[]> {
  return tx
    .selectFrom('operations')
    .selectAll()
    .where((is) =>
      is.or([
        ...(machineId === undefined ? [] : [is('machine_id', '=', machineId)]),
        ...(volumeId === undefined ? [] : [is('volume_id', '=', volumeId)]),
        ...(snapshotId === undefined ? [] : [is('snapshot_id', '=', snapshotId)]),
      ]),
    )
    .where('finished_at', 'is', null)
    .where(isNoExpiry)
    .orderBy('id')
    .forUpdate()
    .execute();
}

export function getOperation(db: Db | Tx, id: string): Promise<OperationRow | undefined> {
  return db.selectFrom('operations').selectAll().where('id', '=', id).executeTakeFirst();
}

/**
 * Claims the operation that is due for the longest time on one of the hosts, as the next attempt at it. Several replicas
 * may ask at once: each gets another one.
 */
export function claimDue(app: App, hostIds: readonly string[]): Promise<Claimed | undefined> {
  const isDue = sql<boolean>`run_at <= now() and host_id = any(${[...hostIds]}::uuid[])`;
  return claimNext(app, isDue);
}

/** Claims an operation before it is due, unless somebody works on it. */
export function claimNow(app: App, id: string): Promise<Claimed | undefined> {
  return claimNext(app, sql<boolean>`id = ${id}`);
}

async function claimNext(app: App, which: RawBuilder<boolean>): Promise<Claimed | undefined> {
  const token = randomUUID();
  const operation = await app.db
    .updateTable('operations')
    .set({ ...freshClaim(app.config.timing.claimTtlMs, token), attempts: sql`attempts + 1` })
    .where('id', '=', (db) =>
      db
        .selectFrom('operations')
        .select('id')
        .where('finished_at', 'is', null)
        .where(which)
        .where(isUnclaimed)
        .orderBy('run_at')
        .limit(1)
        .forUpdate()
        .skipLocked(),
    )
    .returningAll()
    .executeTakeFirst();
  return operation && { operation, token };
}

const claimedBy = (db: Db | Tx, { operation, token }: Claimed) =>
  db
    .updateTable('operations')
    .where('id', '=', operation.id)
    .where('claim_token', '=', token)
    .where('finished_at', 'is', null);

/** Runs `work` and renews the claim meanwhile. */
export async function holdClaim<T>(app: App, claimed: Claimed, work: () => Promise<T>): Promise<T> {
  const renewal = setInterval(() => {
    claimedBy(app.db, claimed)
      .set(freshClaim(app.config.timing.claimTtlMs, claimed.token))
      .execute()
      .catch((err: unknown) => app.log.warn({ err, operation_id: claimed.operation.id }, 'a claim was not renewed'));
  }, app.config.timing.claimRenewMs);
  try {
    return await work();
  } finally {
    clearInterval(renewal);
  }
}

/** Changes a claimed operation, in the transaction of what it means. Throws `ClaimLost`. */
export async function updateClaimed(
  tx: Db | Tx,
  claimed: Claimed,
  set: { undoing?: boolean; args?: string; last_error?: string | null; error_code?: OperationRow['error_code'] },
): Promise<OperationRow> {
  const row = await claimedBy(tx, claimed).set(set).returningAll().executeTakeFirst();
  if (!row) throw new ClaimLost();
  return row;
}

/** Finishes a claimed operation, in the transaction of its result; `refusal`: why it was not done. Throws `ClaimLost`. */
export async function finishClaimed(tx: Tx, { operation, token }: Claimed, refusal?: ServiceError): Promise<void> {
  const { last_error, error_code } = toColumns(refusal);
  const [row] = await finish(tx, operation.id, token, last_error, error_code);
  if (!row) throw new ClaimLost();
}

const finish = statement(
  (db, id: string, token: string, lastError: string | null, errorCode: OperationRow['error_code']) =>
    db
      .updateTable('operations')
      .set({ finished_at: sql<Date>`now()`, claim_token: null, claim_expires_at: null })
      .set({ last_error: lastError, error_code: errorCode })
      .where('id', '=', id)
      .where('claim_token', '=', token)
      .where('finished_at', 'is', null)
      .returning('id'),
);

/** What clients are told of a failure: a bug is not shown to them. */
export const toRefusal = (error: unknown): ServiceError =>
  error instanceof ServiceError
    ? error
    : new ServiceError('internal_error', 'Something went wrong on our side.', { cause: error });

const toColumns = (refusal: ServiceError | undefined) =>
  refusal ? { last_error: refusal.message, error_code: refusal.code } : { last_error: null, error_code: null };

/** The pause after this many failed attempts: `first`, doubled with each, up to `longest`. Milliseconds. */
export const pauseAfterMs = (attempts: number, { first, longest }: { first: number; longest: number }): number =>
  Math.min(first * 2 ** Math.min(Math.max(0, attempts - 1), 30), longest);

/** Gives a claimed operation back after a failure, to be tried again after a pause that grows. Throws `ClaimLost`. */
export async function postponeClaimed(app: App, claimed: Claimed, error: unknown): Promise<void> {
  const pauseMs = pauseAfterMs(claimed.operation.attempts, app.config.timing.retryMs);
  const { numUpdatedRows } = await claimedBy(app.db, claimed)
    .set({
      claim_token: null,
      claim_expires_at: null,
      ...toColumns(toRefusal(error)),
      run_at: sql<Date>`now() + ${pauseMs} * interval '1 millisecond'`,
    })
    .executeTakeFirst();
  if (numUpdatedRows === 0n) throw new ClaimLost();
}

/** Ends an operation that another one takes the place of: its process fails at its next write. */
export async function cancelOperation(tx: Tx, { id }: OperationRow, refusal: ServiceError): Promise<void> {
  await tx
    .updateTable('operations')
    .set({ finished_at: sql<Date>`now()`, claim_token: null, claim_expires_at: null, ...toColumns(refusal) })
    .where('id', '=', id)
    .execute();
}

/** Makes operations due that wait for their next attempt: all of a host, or one. Expiries keep their time. */
export async function hastenOperations(db: Db, which: { hostId: string } | { id: string }): Promise<void> {
  const query = db
    .updateTable('operations')
    .set({ run_at: sql<Date>`now()` })
    .where('finished_at', 'is', null)
    .where(isNoExpiry)
    .where('run_at', '>', sql<Date>`now()`);
  await ('id' in which ? query.where('id', '=', which.id) : query.where('host_id', '=', which.hostId)).execute();
}
