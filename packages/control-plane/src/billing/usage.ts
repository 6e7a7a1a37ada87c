// Computes what an account has used in a time range, and what that cost, straight from its meters. Amounts come from
// the same arithmetic as charges (accrual.ts), so they add up to what the ledger says.
import {
  CURRENCY,
  USAGE_KINDS,
  USAGE_UNITS,
  type Usage,
  type UsageItem,
  type UsageKind,
  type UsageQuery,
} from '@sandbar/contract/billing.ts';
import type { App } from '../app.ts';
import { formatQuantity } from './accrual.ts';
import { formatEur } from './money.ts';
import { readAccountUse, readUsageRange, splitDays } from './usage-range.ts';
import { type GroupSums, sumMeters } from './usage-sums.ts';

/**
 * The use of an account. Throws `validation_error` when `to` is before `from`, or the range or the answer is too long.
 */
export async function getUsage(app: App, accountId: string, query: UsageQuery): Promise<Usage> {
  const groupBy = query.group_by ?? 'kind';
  // One snapshot of the database, so that no charge comes between reading the account and its meters.
  const { account, range, cuts, rows } = await app.db
    .transaction()
    .setIsolationLevel('repeatable read')
    .execute(async (tx) => {
      const account = await readAccountUse(tx, accountId);
      const range = readUsageRange(query, account);
      const cuts = groupBy === 'day' ? splitDays(range) : [range.from, range.to];
      return {
        account,
        range,
        cuts,
        rows: await sumMeters(tx, { accountId, machineId: query.machine_id, cuts, groupBy }),
      };
    });
  const items = rows.flatMap((row) => {
    const cut = cuts[row.part];
    return USAGE_KINDS.flatMap((kind) => toItem(row, kind, groupBy === 'day' ? cut : undefined));
  });
  return {
    currency: CURRENCY,
    balance: formatEur(account.balanceMicros),
    from: range.from.toISOString(),
    to: range.to.toISOString(),
    total: formatEur(items.reduce((sum, { micros }) => sum + micros, 0)),
    items: items.map(({ item }) => item),
  };
}

/** An item of the answer, or nothing for a kind that the group did not use. */
function toItem(row: GroupSums, kind: UsageKind, day: Date | undefined): { micros: number; item: UsageItem }[] {
  const quantity = BigInt(row[`${kind}_quantity`]);
  if (quantity === 0n) return [];
  const micros = row[`${kind}_amount`];
  const item: UsageItem = {
    kind,
    resource_kind: row.resource_kind ?? null,
    resource_id: row.resource_id ?? null,
    day: day?.toISOString().slice(0, 10) ?? null,
    metadata_value: row.metadata_value ?? null,
    quantity: formatQuantity(kind, quantity),
    unit: USAGE_UNITS[kind],
    amount: formatEur(micros),
  };
  return [{ micros, item }];
}
