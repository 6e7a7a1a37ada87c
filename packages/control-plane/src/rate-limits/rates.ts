// Decides which rate limit applies to a request, from the route's declaration, the configuration and the account.
import type { Rate, Rates } from '../config.ts';
import type { Caller, RateLimit } from '../http/route-config.ts';

type Declared = { access?: string | undefined; rateLimit?: RateLimit | undefined };

/** The bucket of a route. If the route declares none, changes are limited and reads are not. */
export function rateLimitOf(route: Declared, methods: readonly string[]): RateLimit {
  if (route.rateLimit) return route.rateLimit;
  const changes = methods.some((method) => method !== 'GET' && method !== 'HEAD');
  return changes && (route.access === 'full' || route.access === 'session') ? 'mutating' : 'none';
}

/**
 * The rate that the operator set for the account, with its burst scaled in proportion; otherwise the configured rate.
 */
export function accountRate(kind: keyof Caller['rates'], configured: Rates, ownRates: Caller['rates']): Rate {
  const { perSec, burst } = configured[kind];
  const own = ownRates[kind];
  if (own === null) return { perSec, burst };
  return { perSec: own, burst: Math.max(1, Math.floor((own * burst) / perSec)) };
}
