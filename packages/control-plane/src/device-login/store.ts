// The SQL of device logins. Only the database's clock is used, so the clocks of the replicas need not agree.
import { DEVICE_LOGIN_BOUNDS } from '@sandbar/contract/device-login.ts';
import { type Selectable, sql } from 'kysely';
import { v7 as uuidv7 } from 'uuid';
import { deleteInBatches } from '../db/batches.ts';
import type { Db, Tx } from '../db/database.ts';
import type { DeviceLoginState, DeviceLoginTable, KeyScope } from '../db/tables.ts';

const { codeSec, intervalSec, slowerSec, wrongCodes } = DEVICE_LOGIN_BOUNDS;
const LIFETIME = sql`make_interval(secs => ${sql.lit(codeSec)})`;
/** The longest pause between polls, seconds. Each early poll makes the pause longer, up to this. */
const INTERVAL_MAX_SEC = 60;
/** The fraction of the pause by which a poll may come early, because timers are not exact. */
const EARLY_PART = 0.1;

export type DeviceLoginRow = Selectable<DeviceLoginTable>;
export type Hashes = { deviceCode: Buffer; userCode: Buffer };

/** Stores a new login. Returns false when another login has the same user code. */
export async function insertLogin(
  db: Db,
  { deviceCode, userCode }: Hashes,
  { name, address }: { name: string; address: string },
): Promise<boolean> {
  const { numInsertedOrUpdatedRows } = await db
    .insertInto('device_logins')
    .values({
      id: uuidv7(),
      device_code_hash: deviceCode,
      user_code_hash: userCode,
      name,
      address,
      interval_sec: intervalSec,
      expires_at: sql<Date>`now() + ${LIFETIME}`,
    })
    .onConflict((conflict) => conflict.column('user_code_hash').doNothing())
    .executeTakeFirstOrThrow();
  return numInsertedOrUpdatedRows === 1n;
}

export type Poll = {
  id: string;
  state: DeviceLoginState;
  account_id: string | null;
  scope: KeyScope | null;
  name: string;
  isLive: boolean;
  /** Whether the program did not wait long enough since its last poll. */
  isEarly: boolean;
};

/**
 * Writes the time of a poll, makes the pause longer when the poll came early, and locks the login until the transaction
 * ends. Undefined for an unknown device code.
 */
export async function notePoll(tx: Tx, deviceCode: Buffer): Promise<Poll | undefined> {
  const { rows } = await sql<Poll>`
    with before as (
      select id, state, account_id, scope, name, expires_at > now() as "isLive",
        coalesce(polled_at > now() - interval_sec * ${sql.lit(1 - EARLY_PART)} * interval '1 second', false) as "isEarly"
      from device_logins where device_code_hash = ${deviceCode} for update
    )
    update device_logins as login set polled_at = now(), interval_sec = case
      when before."isEarly" then least(login.interval_sec + ${sql.lit(slowerSec)}, ${sql.lit(INTERVAL_MAX_SEC)})
      else login.interval_sec end
    from before where login.id = before.id returning before.*`.execute(tx);
  return rows[0];
}

/** Writes that the program got its API key. */
export async function setTaken(tx: Tx, id: string): Promise<void> {
  await tx.updateTable('device_logins').set({ state: 'taken' }).where('id', '=', id).execute();
}

/** Finds a login by its user code, expired or not, and locks it until the transaction ends. */
export async function findByUserCode(
  tx: Tx,
  userCode: Buffer,
): Promise<(DeviceLoginRow & { isLive: boolean }) | undefined> {
  return tx
    .selectFrom('device_logins')
    .selectAll()
    .select(sql<boolean>`expires_at > now()`.as('isLive'))
    .where('user_code_hash', '=', userCode)
    .forUpdate()
    .executeTakeFirst();
}

/** Writes the answer of a person. Returns false when somebody has answered already, or the login has expired. */
export async function answerLogin(
  tx: Tx,
  id: string,
  answer: { state: 'approved'; account_id: string; scope: KeyScope } | { state: 'denied'; account_id: string },
): Promise<boolean> {
  const { numUpdatedRows } = await tx
    .updateTable('device_logins')
    .set(answer)
    .where('id', '=', id)
    .where('state', '=', 'pending')
    .where(sql<boolean>`expires_at > now()`)
    .executeTakeFirst();
  return numUpdatedRows === 1n;
}

/**
 * Locks the account's count of wrong codes until the transaction ends, so that parallel requests cannot try more codes
 * than the limit. Returns how many more wrong codes are allowed, and the seconds until the count starts at zero again.
 */
export async function lockGuesses(tx: Tx, accountId: string): Promise<{ left: number; resetSec: number }> {
  const { rows } = await sql<{ wrong: number; resetSec: number }>`
    insert into device_guesses as guesses (account_id, wrong, last_wrong_at) values (${accountId}, 0, now())
    on conflict (account_id) do update
      set wrong = case when guesses.last_wrong_at < now() - ${LIFETIME} then 0 else guesses.wrong end
    returning wrong, ceil(extract(epoch from last_wrong_at + ${LIFETIME} - now()))::int as "resetSec"`.execute(tx);
  const { wrong = 0, resetSec = codeSec } = rows[0] ?? {};
  return { left: Math.max(0, wrongCodes - wrong), resetSec: Math.max(1, resetSec) };
}

/** Counts a wrong code. Call it after `lockGuesses`. */
export async function countWrongCode(tx: Tx, accountId: string): Promise<void> {
  await tx
    .updateTable('device_guesses')
    .set((eb) => ({ wrong: eb('wrong', '+', 1), last_wrong_at: sql<Date>`now()` }))
    .where('account_id', '=', accountId)
    .execute();
}

/**
 * Removes old logins and old counts of wrong codes, until `closing` is aborted. A login stays for an hour after it has
 * expired, so that a person who enters the code too late reads that it has expired.
 */
export async function sweepDeviceLogins(db: Db, closing?: AbortSignal): Promise<void> {
  await deleteInBatches(db, 'device_logins', sql`expires_at < now() - interval '1 hour'`, closing);
  await deleteInBatches(db, 'device_guesses', sql`last_wrong_at < now() - ${LIFETIME}`, closing);
}
