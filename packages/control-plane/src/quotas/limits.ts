// What an account may use: its tier's limits with its own overrides. Pure arithmetic, no I/O.
import {
  type Amounts,
  QUOTA_DIMENSIONS,
  type QuotaDimension,
  TIER_LIMITS,
  type TierLimits,
} from '@sandbar/contract/quota.ts';
import type { AccountRow } from '../db/tables.ts';

export const LIMIT_NAMES = [...QUOTA_DIMENSIONS, 'vcpus_per_machine', 'memory_mb_per_machine'] as const;
export type LimitName = (typeof LIMIT_NAMES)[number];

/** The columns that limits and use are read from. */
export type LimitColumns = Pick<AccountRow, 'tier' | `limit_${LimitName}`>;
export type UseColumns = Pick<AccountRow, `used_${QuotaDimension}`>;

/** The limits in force. */
export function effectiveLimits(account: LimitColumns): TierLimits {
  const limits = { ...TIER_LIMITS[account.tier] };
  for (const name of LIMIT_NAMES) limits[name] = account[`limit_${name}`] ?? limits[name];
  return limits;
}

/** What is used now, by dimension. */
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

/** The first dimension that `requested` more would exceed. A dimension that nothing is asked of binds nobody. */
export function findExcess(limits: Amounts, used: Amounts, requested: Partial<Amounts>): Excess | undefined {
  for (const dimension of QUOTA_DIMENSIONS) {
    const amount = requested[dimension] ?? 0;
    if (amount > 0 && used[dimension] + amount > limits[dimension]) {
      return { dimension, used: used[dimension], requested: amount, limit: limits[dimension] };
    }
  }
  return undefined;
}
