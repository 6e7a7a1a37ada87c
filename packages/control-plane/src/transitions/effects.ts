// Applies the effects of a change of state beyond the changed row: entries of the activity feed, the use of the
// account's quota, its meters, and the host's reservations. No other code writes the feed, the use and the
// reservations. Meters are also switched by a change of prices (billing/reprice.ts) and by a repair of the audit
// (audit/mend.ts).
import type { NewActivity } from '@sandbar/contract/activity.ts';
import { type Amounts, QUOTA_DIMENSIONS } from '@sandbar/contract/tier-limits.ts';
import { sql } from 'kysely';
import { activityParameter } from '../activity/write.ts';
import { chargeAccounts } from '../billing/charge.ts';
import { NEXT_INSTANT } from '../billing/clock.ts';
import { switchMeters } from '../billing/meters.ts';
import type { Tx } from '../db/database.ts';
import { statement } from '../db/statement.ts';
import type { Overcommit, Room } from '../hosts/room.ts';
import { reserveRoom } from '../hosts/store.ts';
import { fleetIsFull } from '../machines/refusals.ts';
import type { MeterChange } from './metered.ts';

export type Effects = {
  accountId: string;
  hostId: string;
  /** Entries for the activity feed, oldest first. */
  entries: NewActivity[];
  /** Quota amounts to add to the account's use; negative amounts reduce the use. */
  use: Partial<Amounts>;
  /** Resources whose metered size changed. */
  meters: MeterChange[];
  /** What to add to the host's reservations; negative numbers release room. */
  room: Room;
  /** Whether the room is for a machine or volume that is new on the host. A draining host refuses it. */
  isNewOnHost: boolean;
};

/**
 * Applies the effects of one transaction. Locks the account's row and then the host's row until the transaction ends.
 * Throws `fleet_capacity` when the host has too little room for the reservation.
 */
export async function applyEffects(tx: Tx, effects: Effects, overcommit: Overcommit): Promise<void> {
  const { hostId, room, isNewOnHost } = effects;
  const changed = changeAccount(tx, effects);
  if (Object.values(room).some((amount) => amount > 0)) {
    const [isReserved] = await Promise.all([reserveRoom(tx, hostId, room, overcommit, isNewOnHost), changed]);
    if (!isReserved) throw fleetIsFull(room);
  } else {
    // Releasing room is never refused, so the commit can be sent before these statements are answered. If one of them
    // fails, the commit throws its error.
    const isGivenBack = Object.values(room).some((amount) => amount < 0);
    const given = isGivenBack ? reserveRoom(tx, hostId, room, overcommit, false) : undefined;
    Promise.all([changed, given]).catch(() => undefined);
  }
}

/** Returns a + sign * b for every quota dimension. */
export function addAmounts(a: Partial<Amounts>, b: Partial<Amounts>, sign: 1 | -1 = 1): Partial<Amounts> {
  return Object.fromEntries(QUOTA_DIMENSIONS.map((name) => [name, (a[name] ?? 0) + sign * (b[name] ?? 0)]));
}

/**
 * Appends entries to an account's activity feed, oldest first, in the transaction of the change that they describe.
 *
 * A reader that pages through the feed, or asks for entries newer than its last one, must never miss an entry that is
 * committed late. Therefore the account's row stores the time of the last entry and stays locked until the commit. So
 * no two entries of an account have the same time, and entries become visible in the order of their times.
 */
export function writeActivity(tx: Tx, accountId: string, entries: NewActivity[]): Promise<void> {
  return changeAccount(tx, { accountId, entries, use: {}, meters: [] });
}

/**
 * Meters are switched at the instant of the last entry, so the feed and the meters agree to the millisecond. What has
 * accrued until then is charged in the same transaction.
 */
async function changeAccount(
  tx: Tx,
  { accountId, entries, use, meters }: Omit<Effects, 'hostId' | 'room' | 'isNewOnHost'>,
): Promise<void> {
  const amounts = { ...NO_AMOUNTS, ...use };
  const isMoved = Object.values(amounts).some((amount) => amount !== 0);
  const statements: Promise<unknown>[] = [];
  if (entries.length > 0 || meters.length > 0) {
    statements.push(tell(tx, accountId, amounts, Math.max(1, entries.length), activityParameter(entries)));
  } else if (isMoved) statements.push(moveUse(tx, accountId, amounts));
  if (meters.length > 0) statements.push(switchMeters(tx, accountId, meters), chargeAccounts(tx, [accountId]));
  await Promise.all(statements);
}

const NO_AMOUNTS: Amounts = { machines: 0, vcpus: 0, memory_mb: 0, storage_gb: 0, volumes: 0 };

const movedUse = (amounts: Amounts) => ({
  used_machines: sql<number>`used_machines + ${amounts.machines}::int`,
  used_vcpus: sql<number>`used_vcpus + ${amounts.vcpus}::int`,
  used_memory_mb: sql<number>`used_memory_mb + ${amounts.memory_mb}::int`,
  used_storage_gb: sql<number>`used_storage_gb + ${amounts.storage_gb}::int`,
  used_volumes: sql<number>`used_volumes + ${amounts.volumes}::int`,
});

const moveUse = statement((db, accountId: string, amounts: Amounts) =>
  db.updateTable('accounts').set(movedUse(amounts)).where('id', '=', accountId),
);

/**
 * One statement that updates the account's use and inserts `count` activity entries. The entries get different times,
 * one millisecond apart, and the last time is stored in the account's `activity_at`. Without entries, `count` is 1, and
 * only the account's clock moves to its next instant.
 */
const tell = statement((db, accountId: string, amounts: Amounts, count: number, entries: string) =>
  db
    .with('clock', (tx) =>
      tx
        .updateTable('accounts')
        .set({
          ...movedUse(amounts),
          activity_at: sql<Date>`${NEXT_INSTANT} + (${count}::int - 1) * interval '1 millisecond'`,
        })
        .where('id', '=', accountId)
        .returning(['id', 'activity_at']),
    )
    .insertInto('activity')
    .columns(['account_id', 'created_at', 'id', 'category', 'action', 'actor', 'machine_id', 'metadata'])
    .expression(
      sql`select clock.id, clock.activity_at - (${count}::int - entry.position) * interval '1 millisecond',
          entry.id, entry.category, entry.action, entry.actor, entry.machine_id, entry.metadata
        from clock, rows from (
          jsonb_to_recordset(${entries}::jsonb)
          as (id uuid, category text, action text, actor text, machine_id text, metadata jsonb)
        ) with ordinality as entry (id, category, action, actor, machine_id, metadata, position)`,
    ),
);
