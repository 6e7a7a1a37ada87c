// Refuses a request that would exceed the account's quota. The caller has locked the account's row, so parallel
// requests cannot exceed the quota together. transitions/effects.ts updates the use.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Amounts } from '@sandbar/contract/tier-limits.ts';
import { currentUse, effectiveLimits, findExcess, type LimitColumns, type UseColumns } from './limits.ts';

/**
 * Throws `quota_exceeded` if adding `amounts` would exceed the account's quota in any dimension. The error names the
 * first such dimension.
 */
export function checkQuota(account: LimitColumns & UseColumns, amounts: Partial<Amounts>): void {
  const excess = findExcess(effectiveLimits(account), currentUse(account), amounts);
  if (!excess) return;
  const { dimension, used, requested, limit } = excess;
  throw new ServiceError(
    'quota_exceeded',
    `The quota ${dimension} of the account would be exceeded: used ${used}, requested ${requested}, limit ${limit}.`,
  );
}
