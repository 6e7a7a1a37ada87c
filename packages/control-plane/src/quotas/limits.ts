// Computes an account's quota limits: the limits of its tier, replaced by the account's own overrides where there are
// any. Pure functions.
import {
  type Amounts,
  QUOTA_DIMENSIONS,
  type QuotaDimension,
  TIER_LIMITS,
  type TierLimits,
} from '@sandbar/contract/tier-limits.ts';
import type { AccountRow } from '../db/tables.ts';

export const LIMIT_NAMES = [...QUOTA_DIMENSIONS, 'vcpus_per_machine', 'memory_mb_per_machine'] as const;
export type LimitName = (typeof LIMIT_NAMES)[number];

/** The account columns from which the limits are computed. */
export type LimitColumns = Pick<AccountRow, 'tier' | `limit_${LimitName}`>;
export type UseColumns = Pick<AccountRow, `used_${QuotaDimension}`>;

/** Returns the limits that apply to the account. */
export function effectiveLimits(account: LimitColumns): TierLimits {
  const limits = { ...TIER_LIMITS[account.tier] };
  for (const name of LIMIT_NAMES) limits[name] = account[`limit_${name}`] ?? limits[name];
  return limits;
}

/** Returns the account's current use of each quota dimension. */
export function currentUse(account: UseColumns): Amounts {
  return {
    machines: account.used_machines,
    vcpus: account.used_vcpus,
    memory_mb: account.used_memory_mb,
    storage_gb: account.used_storage_gb,
    volumes: account.used_volumes,
  };
}

export type Excess = { dimension: QuotaDimension; used: number; requested: number; limit: number };

/**
 * Returns the first dimension in which `used` + `requested` exceeds the limit, or undefined. A dimension of which
 * nothing is requested is never exceeded, even if the account is already over its limit there.
 */
export function findExcess(limits: Amounts, used: Amounts, requested: Partial<Amounts>): Excess | undefined {
  for (const dimension of QUOTA_DIMENSIONS) {
    const amount = requested[dimension] ?? 0;
    if (amount > 0 && used[dimension] + amount > limits[dimension]) {
      return { dimension, used: used[dimension], requested: amount, limit: limits[dimension] };
    }
  }
  return undefined;
}
