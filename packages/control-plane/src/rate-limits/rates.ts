// Which rate a request of a route is held to: a pure rule over the route's declaration, the configuration and the account.
import type { Rate, Rates } from '../config.ts';
import type { Caller, RateLimit } from '../http/route-config.ts';

type Declared = { access?: string | undefined; rateLimit?: RateLimit | undefined };

/** What a route that declares no `rateLimit` has: what changes something is limited, and reads are not. */
export function rateLimitOf(route: Declared, methods: readonly string[]): RateLimit {
  if (route.rateLimit) return route.rateLimit;
  const changes = methods.some((method) => method !== 'GET' && method !== 'HEAD');
  return changes && (route.access === 'full' || route.access === 'session') ? 'mutating' : 'none';
}

/** The account's own rate, with a burst that grows with it, else the configured one. */
export function accountRate(kind: keyof Caller['rates'], configured: Rates, ownRates: Caller['rates']): Rate {
  const { perSec, burst } = configured[kind];
  const own = ownRates[kind];
  if (own === null) return { perSec, burst };
  return { perSec: own, burst: Math.max(1, Math.floor((own * burst) / perSec)) };
}
