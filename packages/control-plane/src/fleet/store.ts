// The SQL of the fleet: its authorities, its join tokens and the rows of joined hosts. Only the database's clock is
// used, so the clocks of the replicas need not agree.
import { sql } from 'kysely';
import { v7 as uuidv7 } from 'uuid';
import { deleteInBatches } from '../db/batches.ts';
import type { Db, Tx } from '../db/database.ts';
import type { HostRow } from '../db/tables.ts';

/** The key of the advisory lock: an arbitrary number, the same in every replica. */
const LOCK_KEY = 4_150_211;
/** How long an authority is known before it signs, in seconds: every replica has read it by then. */
const KNOWN_SEC = 120;
const signsFrom = sql<Date>`created_at + make_interval(secs => ${sql.lit(KNOWN_SEC)})`;

export type AuthorityRow = {
  id: string;
  certificate: string;
  sealed_key: Buffer;
  /** When it begins to sign, unless it is the only one. By then every replica has read it. */
  signsFrom: Date;
  /** The time of the query. */
  now: Date;
};

/** Makes all other changes of authorities and tokens wait until this transaction ends. */
export async function lockFleet(tx: Tx): Promise<void> {
  await sql`select pg_advisory_xact_lock(${LOCK_KEY}::bigint)`.execute(tx);
}

/** Returns the authorities, oldest first. */
export async function listAuthorities(db: Db | Tx): Promise<AuthorityRow[]> {
  return db
    .selectFrom('fleet_authorities')
    .select(['id', 'certificate', 'sealed_key', signsFrom.as('signsFrom'), sql<Date>`now()`.as('now')])
    .orderBy('created_at')
    .orderBy('id')
    .execute();
}

export async function insertAuthority(tx: Tx, id: string, certificate: string, sealedKey: Buffer): Promise<void> {
  await tx.insertInto('fleet_authorities').values({ id, certificate, sealed_key: sealedKey }).execute();
}

export async function replaceSealedKey(tx: Tx, id: string, sealedKey: Buffer): Promise<void> {
  await tx.updateTable('fleet_authorities').set({ sealed_key: sealedKey }).where('id', '=', id).execute();
}

/**
 * Deletes all authorities but `id`, unless a host still has a certificate that another one may have signed, or a join
 * token is unused. `hostDays`: for how many days certificates of hosts are valid. Returns how many were deleted.
 */
export async function deleteOtherAuthorities(tx: Tx, id: string, hostDays: number): Promise<number> {
  const { rows } = await sql`
    delete from fleet_authorities as other using fleet_authorities as signer
    where signer.id = ${id} and other.id <> signer.id
      and not exists (select from hosts where address is not null and removed_at is null
        and certificate_expires_at > now()
        and certificate_expires_at < signer.created_at + make_interval(secs => ${hostDays * 86_400 + KNOWN_SEC}))
      and not exists (select from host_tokens where used_at is null and expires_at > now())
    returning other.id`.execute(tx);
  return rows.length;
}

export async function insertToken(
  tx: Tx,
  hash: Buffer,
  expiresInSec: number,
): Promise<{ id: string; expiresAt: Date }> {
  const { id, expires_at } = await tx
    .insertInto('host_tokens')
    .values({
      id: uuidv7(),
      token_hash: hash,
      expires_at: sql<Date>`now() + ${expiresInSec} * interval '1 second'`,
    })
    .returning(['id', 'expires_at'])
    .executeTakeFirstOrThrow();
  return { id, expiresAt: expires_at };
}

/** Returns the tokens that can still be used, newest first. */
export async function listTokens(db: Db): Promise<{ id: string; created_at: Date; expires_at: Date }[]> {
  return db
    .selectFrom('host_tokens')
    .select(['id', 'created_at', 'expires_at'])
    .where('used_at', 'is', null)
    .where(sql<boolean>`expires_at > now()`)
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc')
    .execute();
}

/** Deletes a token that was not used. Returns false if there is none with this id. */
export async function deleteToken(db: Db, id: string): Promise<boolean> {
  const { numDeletedRows } = await db
    .deleteFrom('host_tokens')
    .where('id', '=', id)
    .where('used_at', 'is', null)
    .executeTakeFirst();
  return numDeletedRows === 1n;
}

/**
 * Spends a token. Succeeds again for the same host with the same key, because the answer to its first request may have
 * been lost; but not if the host has been removed since. Returns false if the token cannot be used. The token's row
 * stays locked until the transaction ends, so of two parallel requests one waits and then sees what the other did.
 */
export async function spendToken(tx: Tx, hash: Buffer, hostId: string, keyHash: Buffer): Promise<boolean> {
  const isRepeated = sql<boolean>`host_id = ${hostId} and key_hash = ${keyHash}
    and not exists (select from hosts where hosts.id = ${hostId} and hosts.removed_at > host_tokens.used_at)`;
  const { numUpdatedRows } = await tx
    .updateTable('host_tokens')
    .set({ used_at: sql<Date>`coalesce(used_at, now())`, host_id: hostId, key_hash: keyHash })
    .where('token_hash', '=', hash)
    .where(sql<boolean>`expires_at > now()`)
    .where(sql<boolean>`(used_at is null or (${isRepeated}))`)
    .executeTakeFirst();
  return numUpdatedRows === 1n;
}

/**
 * Inserts the row of a joined host, or makes a removed one part of the fleet again. Its agent reports its facts at the
 * first connection. Until then nothing fits on it.
 */
export async function recordJoined(
  tx: Tx,
  { id, name, address }: { id: string; name: string; address: string },
  expiresAt: Date,
): Promise<void> {
  const joined = { name, address, certificate_expires_at: expiresAt };
  const unknown = { version: '', boot_id: '', network: 'bridge', subnet: '', cpus: 0, memory_mb: 0 } as const;
  await tx
    .insertInto('hosts')
    .values({ id, ...unknown, isolation: 'emulated', images: '[]', ...joined })
    .onConflict((conflict) =>
      conflict.column('id').doUpdateSet({
        ...joined,
        removed_at: null,
        draining: sql<boolean>`hosts.draining and hosts.removed_at is null`,
        emptying: sql<boolean>`hosts.emptying and hosts.removed_at is null`,
      }),
    )
    .execute();
}

/** Returns the row of a joined host. Undefined for one that is no part of the fleet, or that needs no certificate. */
export async function findJoined(
  db: Db,
  hostId: string,
): Promise<(Pick<HostRow, 'id'> & { certificateExpiresAt: Date }) | undefined> {
  const row = await db
    .selectFrom('hosts')
    .select(['id', 'certificate_expires_at'])
    .where('id', '=', hostId)
    .where('removed_at', 'is', null)
    .executeTakeFirst();
  return row?.certificate_expires_at ? { id: row.id, certificateExpiresAt: row.certificate_expires_at } : undefined;
}

/** Records until when the new certificate of a host is valid. */
export async function recordRenewed(db: Db, hostId: string, expiresAt: Date): Promise<void> {
  await db.updateTable('hosts').set({ certificate_expires_at: expiresAt }).where('id', '=', hostId).execute();
}

/** Removes tokens a day after they have expired, until `closing` is aborted. */
export async function sweepHostTokens(db: Db, closing?: AbortSignal): Promise<void> {
  await deleteInBatches(db, 'host_tokens', sql`expires_at < now() - interval '1 day'`, closing);
}
