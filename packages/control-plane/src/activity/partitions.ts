// The feed has a table (partition) for each month. The tables of the next months are made in advance, and a month's
// table is dropped once all its entries are older than the retention. This code runs as the owner of the tables,
// because the role of the application may neither make tables nor remove entries.
import { sql } from 'kysely';
import type { Db } from '../db/database.ts';
import { inTransaction } from '../db/transaction.ts';

/** How many months after the current one get their table in advance. */
const MONTHS_AHEAD = 2;
/** The key of the advisory lock: an arbitrary number, the same in every replica. */
const LOCK_KEY = 7_311_842_006;

export type Partition = { name: string; from: Date; to: Date };

/** The month (UTC) that is `offset` months after the month of `time`. */
export function monthOf(time: Date, offset = 0): Partition {
  const from = new Date(Date.UTC(time.getUTCFullYear(), time.getUTCMonth() + offset, 1));
  const to = new Date(Date.UTC(time.getUTCFullYear(), time.getUTCMonth() + offset + 1, 1));
  return { name: `activity_${from.toISOString().slice(0, 7).replace('-', '_')}`, from, to };
}

/** The start of the oldest month that is kept. All entries of earlier months are older than `retentionDays`. */
export function oldestKept(now: Date, retentionDays: number): Date {
  return monthOf(new Date(now.getTime() - retentionDays * 86_400_000)).from;
}

/** Makes missing months and drops months past the retention, by the database's clock. Returns the names of both. */
export async function keepMonths(owner: Db, retentionDays: number): Promise<{ made: string[]; dropped: string[] }> {
  return inTransaction(owner, async (tx) => {
    const { rows: lock } = await sql<{ ok: boolean; now: Date }>`
      select pg_try_advisory_xact_lock(${LOCK_KEY}::bigint) as ok, now() as now`.execute(tx);
    // Another replica is making and dropping months right now.
    if (!lock[0]?.ok) return { made: [], dropped: [] };
    const { now } = lock[0];
    const { rows } = await sql<{ name: string }>`
      select c.relname as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent = 'activity'::regclass`.execute(tx);
    const present = new Set(rows.map((row) => row.name));
    const wanted = Array.from({ length: MONTHS_AHEAD + 1 }, (_, offset) => monthOf(now, offset));
    const made = wanted.filter((month) => !present.has(month.name));
    for (const month of made) await createMonth(tx, month);
    const oldest = monthOf(oldestKept(now, retentionDays)).name;
    // Names such as activity_2026_01 sort in the order of the months.
    const dropped = [...present].filter((name) => name < oldest);
    for (const name of dropped) await sql`drop table ${sql.table(name)}`.execute(tx);
    return { made: made.map((month) => month.name), dropped };
  });
}

/**
 * Makes the table of a month. The role of the application gets no rights on it, because it uses only the parent table.
 */
export async function createMonth(owner: Db, { name, from, to }: Partition): Promise<void> {
  await sql`
    create table ${sql.table(name)} partition of activity
    for values from (${sql.lit(from.toISOString())}) to (${sql.lit(to.toISOString())})`.execute(owner);
}
