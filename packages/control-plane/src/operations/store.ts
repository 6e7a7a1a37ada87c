// The SQL of operations. One row describes one unfinished change of a machine, a volume or a snapshot. It is inserted
// before the change begins, and finished in the transaction that records the result. A finished row is kept for one
// hour, so that waiting requests can read the result.
//
//   due --claim--> claimed, renewed every 3 s --finish--> finished
//    ^                |        \--not renewed for 10 s, because its process died--> due
//    \---postpone-----/
//
// A claim does not block other processes. Instead, every write of the process that holds the claim checks the claim's
// token. A process that has lost its claim (because it stalled, or because the machine was deleted) fails at its next
// write and overwrites nothing.
import { randomUUID } from 'node:crypto';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { StartPath } from '@sandbar/contract/host-api.ts';
import { type Insertable, type RawBuilder, sql } from 'kysely';
import type { App } from '../app.ts';
import type { Db, Tx } from '../db/database.ts';
import { refusalOfDatabase } from '../db/refusals.ts';
import { statement } from '../db/statement.ts';
import type { OperationRow, OperationTable } from '../db/tables.ts';
import { ClaimLost } from './refusals.ts';

/** An operation that this process has claimed, with the token of the claim. */
export type Claimed = {
  operation: OperationRow;
  token: string;
  /** How the host started the machine, if it did. The attempt sets it, for the metrics of the request. */
  startPath?: StartPath | undefined;
};

/**
 * SQL condition: no process holds a valid claim on the operation, by the database's clock. Claims last for seconds. So one
 * that ends much later was made before that clock was set back, and its process may be dead.
 */
export const isUnclaimed = sql<boolean>`(operations.claim_token is null or operations.claim_expires_at < now()
  or operations.claim_expires_at > now() + interval '10 minutes')`;

/**
 * SQL condition: the operation is not an expiry. The kind is a literal and not a parameter, because PostgreSQL uses the
 * partial index `operations_machine` for a literal only.
 */
export const isNoExpiry = sql<boolean>`operations.kind <> 'expire'`;

const freshClaim = (ttlMs: number, token: string) => ({
  claim_token: token,
  claim_expires_at: sql<Date>`now() + ${ttlMs}::int * interval '1 millisecond'`,
});

export type NewOperation = Pick<
  Insertable<OperationTable>,
  'account_id' | 'host_id' | 'machine_id' | 'volume_id' | 'snapshot_id' | 'kind' | 'args' | 'actor'
>;

/** Inserts an operation that is claimed by the caller and counts as its first attempt. */
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

/** Inserts an operation that is due now and that nobody has claimed yet. Returns its id. */
export async function insertDue(tx: Tx, row: NewOperation): Promise<string> {
  const { id } = await tx.insertInto('operations').values(row).returning('id').executeTakeFirstOrThrow();
  return id;
}

/** The machine, volume and snapshot that an operation changes, by id. */
export type Subject = { machineId?: string; volumeId?: string; snapshotId?: string };

/**
 * Returns the unfinished operations on the given machine, volume or snapshot, except expiries. A move of a machine is also
 * an operation on its snapshots. The rows stay locked until the transaction ends.
 */
export function lockUnfinished(tx: Tx, { machineId, volumeId, snapshotId }: Subject): Promise<OperationRow[]> {
  return tx
    .selectFrom('operations')
    .selectAll()
    .where((is) =>
      is.or([
        ...(machineId === undefined ? [] : [is('machine_id', '=', machineId)]),
        ...(volumeId === undefined ? [] : [is('volume_id', '=', volumeId)]),
        ...(snapshotId === undefined ? [] : [is('snapshot_id', '=', snapshotId), movesSnapshot(snapshotId)]),
      ]),
    )
    .where('finished_at', 'is', null)
    .where(isNoExpiry)
    .orderBy('id')
    .forUpdate()
    .execute();
}

const movesSnapshot = (snapshotId: string) =>
  sql<boolean>`(kind = 'move' and machine_id = (select machine_id from snapshots where id = ${snapshotId}))`;

export function getOperation(db: Db | Tx, id: string): Promise<OperationRow | undefined> {
  return db.selectFrom('operations').selectAll().where('id', '=', id).executeTakeFirst();
}

/**
 * Claims one due operation on the given hosts: the one with the earliest `run_at`. A move needs both of its hosts. Counts a
 * new attempt. Returns
 * undefined if none is due. When several replicas call this at once, each gets a different operation.
 */
export function claimDue(app: App, hostIds: readonly string[]): Promise<Claimed | undefined> {
  const isDue = sql<boolean>`run_at <= now() and host_id = any(${[...hostIds]}::uuid[])
    and coalesce(args ->> 'to_host_id', host_id::text) = any(${[...hostIds]}::text[])`;
  return claimNext(app, isDue);
}

/**
 * Claims an operation even if it is not due yet, and counts a new attempt. Returns undefined when another process holds
 * a claim on it or it is finished.
 */
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

/** Runs `work` and renews the claim every `claimRenewMs` until `work` ends. */
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

/**
 * Changes columns of a claimed operation. Returns the new row. Throws `ClaimLost` when this process has lost the claim.
 */
export async function updateClaimed(
  tx: Db | Tx,
  claimed: Claimed,
  set: { undoing?: boolean; args?: string; last_error?: string | null; error_code?: OperationRow['error_code'] },
): Promise<OperationRow> {
  const row = await claimedBy(tx, claimed).set(set).returningAll().executeTakeFirst();
  if (!row) throw new ClaimLost();
  return row;
}

/**
 * Finishes a claimed operation in the transaction that records its result. `refusal`: why the operation was not done;
 * undefined when it succeeded. Throws `ClaimLost`.
 */
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

/** Turns an error into the error that clients see. The text of an unexpected error (a bug) is hidden from them. */
export function toRefusal(error: unknown): ServiceError {
  if (error instanceof ServiceError) return error;
  const bug = () => new ServiceError('internal_error', 'Something went wrong on our side.', { cause: error });
  return refusalOfDatabase(error) ?? bug();
}

export const toColumns = (refusal: ServiceError | undefined) =>
  refusal ? { last_error: refusal.message, error_code: refusal.code } : { last_error: null, error_code: null };

/**
 * Returns the pause before the next attempt, in milliseconds: `first` after one failed attempt, doubled after each
 * further one, at most `longest`.
 */
export const pauseAfterMs = (attempts: number, { first, longest }: { first: number; longest: number }): number =>
  Math.min(first * 2 ** Math.min(Math.max(0, attempts - 1), 30), longest);

/**
 * Gives up the claim after a failed attempt and makes the operation due again after a growing pause. `error` is stored
 * as the reason. Throws `ClaimLost`.
 */
export async function postponeClaimed(app: App, claimed: Claimed, error: unknown): Promise<void> {
  const pauseMs = pauseAfterMs(claimed.operation.attempts, app.config.timing.retryMs);
  const { last_error, error_code } = toColumns(toRefusal(error));
  const { numUpdatedRows } = await claimedBy(app.db, claimed)
    .set({
      claim_token: null,
      claim_expires_at: null,
      // While an operation is being undone, its row keeps the refusal, which waiting requests report at the end. The row
      // can say `undoing` although this process got no answer to that update.
      last_error: sql<string | null>`case when undoing then last_error else ${last_error} end`,
      error_code: sql<OperationRow['error_code']>`case when undoing then error_code else ${error_code} end`,
      run_at: sql<Date>`now() + ${pauseMs} * interval '1 millisecond'`,
    })
    .executeTakeFirst();
  if (numUpdatedRows === 0n) throw new ClaimLost();
}

/** Makes postponed operations due now: all operations of some hosts, or a single one. Expiries keep their time. */
export async function hastenOperations(db: Db, which: { hostIds: readonly string[] } | { id: string }): Promise<void> {
  const query = db
    .updateTable('operations')
    .set({ run_at: sql<Date>`now()` })
    .where('finished_at', 'is', null)
    .where(isNoExpiry)
    .where('run_at', '>', sql<Date>`now()`);
  const ofHosts = (hostIds: readonly string[]) =>
    query.where((is) =>
      is.or([
        is('host_id', '=', is.fn.any(is.val([...hostIds]))),
        is(sql<string>`args ->> 'to_host_id'`, '=', is.fn.any(is.val([...hostIds]))),
      ]),
    );
  await ('id' in which ? query.where('id', '=', which.id) : ofHosts(which.hostIds)).execute();
}
