// Computes the lines of a charge from the meters that it covers. The ledger stores only the sums of a charge. Meters
// and prices never change, so the lines can be computed at any time and always add up to these sums.
import {
  type ChargeLine,
  type ResourceKind,
  USAGE_KINDS,
  USAGE_UNITS,
  type UsageKind,
} from '@sandbar/contract/billing.ts';
import { sql } from 'kysely';
import type { Db } from '../db/database.ts';
import { amountOf, formatQuantity, meteredMs, priceOf, quantityOf } from './accrual.ts';
import { formatEur } from './money.ts';

type Row = { resource_kind: ResourceKind; resource_id: string; begin: Date; end: Date } & {
  [K in `${UsageKind}_${'price' | 'amount'}`]: number;
} & { [K in `${UsageKind}_quantity`]: string };

/** The lines of the charge with this id: one for each meter and kind, in the order in which the meters began. */
export async function readChargeLines(db: Db, chargeId: string): Promise<ChargeLine[]> {
  const before = sql<number>`ran.before`;
  const after = sql<number>`ran.after`;
  const columns = USAGE_KINDS.map(
    (kind) => sql`
      ${priceOf(kind)} as ${sql.ref(`${kind}_price`)},
      ${amountOf(kind, after)} - ${amountOf(kind, before)} as ${sql.ref(`${kind}_amount`)},
      (${quantityOf(kind, sql`ran.after - ran.before`)})::text as ${sql.ref(`${kind}_quantity`)}`,
  );
  const { rows } = await sql<Row>`
    select m.resource_kind, m.resource_id, greatest(m.started_at, charge.charged_from) as begin,
      least(m.ended_at, charge.charged_to) as end, ${sql.join(columns)}
    from ledger as charge
    join meters as m on m.id = any (charge.meter_ids)
    join prices as p on p.id = m.price_id,
    lateral (
      select ${meteredMs(sql`charge.charged_from`)} as before, ${meteredMs(sql`charge.charged_to`)} as after offset 0
    ) as ran
    where charge.id = ${chargeId}
    order by m.started_at, m.id`.execute(db);
  return rows.flatMap((row) => USAGE_KINDS.flatMap((kind) => toLine(row, kind)));
}

/** A line, or nothing for a kind that the meter does not count. */
function toLine(row: Row, kind: UsageKind): ChargeLine[] {
  const quantity = BigInt(row[`${kind}_quantity`]);
  if (quantity === 0n) return [];
  const line: ChargeLine = {
    resource_kind: row.resource_kind,
    resource_id: row.resource_id,
    kind,
    from: row.begin.toISOString(),
    to: row.end.toISOString(),
    quantity: formatQuantity(kind, quantity),
    unit: USAGE_UNITS[kind],
    price: formatEur(row[`${kind}_price`]),
    amount: formatEur(row[`${kind}_amount`]),
  };
  return [line];
}
