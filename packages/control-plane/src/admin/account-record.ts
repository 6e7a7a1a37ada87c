// Accounts in the form that the operator's commands show.
import { ACCOUNT_LIMITS, type AccountDetails, type AccountSummary } from '@sandbar/contract/admin.ts';
import { isOperator } from '../accounts/store.ts';
import { formatEur } from '../billing/money.ts';
import type { Rates } from '../config.ts';
import type { AccountRow } from '../db/tables.ts';
import { currentUse, effectiveLimits } from '../quotas/limits.ts';
import { accountRate } from '../rate-limits/rates.ts';

export function toSummary(row: AccountRow): AccountSummary {
  return {
    id: row.id,
    email: row.email,
    tier: row.tier,
    billing_mode: row.billing_mode,
    balance: formatEur(row.balance_micros),
    is_owner: row.is_owner,
    is_operator: isOperator(row),
    machines: row.used_machines,
    created_at: row.created_at.toISOString(),
    suspended_at: row.suspended_at?.toISOString() ?? null,
    deleted_at: row.deleted_at?.toISOString() ?? null,
  };
}

export function toDetails(row: AccountRow, configured: Rates): AccountDetails {
  const limits = effectiveLimits(row);
  const own = { mutating: row.rate_mutating, exec: row.rate_exec };
  const rate = (kind: 'mutating' | 'exec') => {
    const { perSec, burst } = accountRate(kind, configured, own);
    return { per_sec: perSec, burst, override: own[kind] };
  };
  return {
    ...toSummary(row),
    limits: Object.fromEntries(
      ACCOUNT_LIMITS.map((name) => [name, { limit: limits[name], override: row[`limit_${name}`] }]),
    ) as AccountDetails['limits'],
    used: currentUse(row),
    rates: { mutating: rate('mutating'), exec: rate('exec') },
  };
}
