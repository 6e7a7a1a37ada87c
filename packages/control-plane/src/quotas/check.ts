// The refusal of a charge that an account has no room for. The caller has locked the account's row, so of many charges at
// once exactly those that fit are made; transitions/effects.ts moves the use.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Amounts } from '@sandbar/contract/quota.ts';
import { currentUse, effectiveLimits, findExcess, type LimitColumns, type UseColumns } from './limits.ts';

/** Throws `quota_exceeded` naming the first dimension in which an account has no room for `amounts`, if there is one. */
export function checkQuota(account: LimitColumns & UseColumns, amounts: Partial<Amounts>): void {
  const excess = findExcess(effectiveLimits(account), currentUse(account), amounts);
  if (!excess) return;
  const { dimension, used, requested, limit } = excess;
  throw new ServiceError(
    'quota_exceeded',
    `The quota ${dimension} of the account would be exceeded: used ${used}, requested ${requested}, limit ${limit}.`,
  );
}
