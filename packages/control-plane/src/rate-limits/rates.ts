// Decides which rate limit applies to a request, from the route's declaration, the configuration and the account.
import type { Rate, Rates } from '../config.ts';
import type { Caller, RateLimit } from '../http/route-config.ts';

type Declared = { access?: string | undefined; rateLimit?: RateLimit | undefined };

/** The bucket of a route. If the route declares none, changes are limited and reads are not. */
export function rateLimitOf(route: Declared, methods: readonly string[]): RateLimit {
  if (route.rateLimit) return route.rateLimit;
  const changes = methods.some((method) => method !== 'GET' && method !== 'HEAD');
  return changes && ['full', 'session', 'operator'].includes(route.access ?? '') ? 'mutating' : 'none';
}

/** The buckets that each account has. */
export type AccountBucket = 'mutating' | 'exec' | 'files';

/**
 * The rate that the operator set for the account, with its burst scaled in proportion; otherwise the configured rate.
 * The rate of changes of files is scaled like that of all other changes, so the operator sets only the latter.
 */
export function accountRate(bucket: AccountBucket, configured: Rates, ownRates: Caller['rates']): Rate {
  const kind = bucket === 'files' ? 'mutating' : bucket;
  const own = ownRates[kind];
  const { perSec, burst } = configured[bucket];
  if (own === null) return { perSec, burst };
  const factor = own / configured[kind].perSec;
  return { perSec: perSec * factor, burst: Math.max(1, Math.floor(burst * factor)) };
}
