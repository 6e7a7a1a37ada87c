// Checks the rate limits of every request, after its credential and scope (401, 403) and before its body (400).
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { FastifyInstance, FastifyReply, RouteOptions } from 'fastify';
import type { App } from '../app.ts';
import { readDeviceCookie } from '../auth/device-cookie.ts';
import type { Rate } from '../config.ts';
import { callerOf } from '../http/auth.ts';
import { type AccountBucket, accountRate, rateLimitOf } from './rates.ts';
import { addressKey, deviceKey, emailKey, emailOf, sessionKey, unknownKey } from './sign-in.ts';
import { takeToken, type Verdict } from './store.ts';

const ACCOUNT_REFUSALS = {
  mutating: 'The account sends too many requests that change something',
  exec: 'The account starts too many jobs',
  files: 'The account changes too many files',
} as const satisfies Record<AccountBucket, string>;

/** `limit`: the name of the limit in the metrics. */
type Bucket = { limit: string; key: string; rate: Rate };

const isAccountBucket = (rateLimit: string | undefined): rateLimit is AccountBucket =>
  rateLimit !== undefined && Object.hasOwn(ACCOUNT_REFUSALS, rateLimit);

/** Adds the checks. Call it after `installAuth` and before the first route. */
export function installRateLimits(server: FastifyInstance, app: App): void {
  server.addHook('onRoute', (route: RouteOptions) => {
    const config = route.config ?? {};
    route.config = { ...config, rateLimit: rateLimitOf(config, [route.method].flat()) };
  });
  const take = async (reply: FastifyReply, { limit, key, rate }: Bucket, refusal: string): Promise<void> => {
    const verdict = await takeToken(app.db, key, rate);
    if (!verdict.isAllowed) app.metrics.rateLimited.inc({ limit });
    apply(reply, verdict, refusal);
  };
  server.addHook('onRequest', async (request, reply) => {
    const { rateLimit } = request.routeOptions.config;
    if (isAccountBucket(rateLimit)) {
      const caller = callerOf(request);
      const rate = accountRate(rateLimit, app.config.rates, caller.rates);
      const bucket = { limit: rateLimit, key: `${rateLimit}:${caller.accountId}`, rate };
      await take(reply, bucket, ACCOUNT_REFUSALS[rateLimit]);
    }
    if (rateLimit === 'sign-in' || rateLimit === 'password') {
      const bucket = { limit: 'sign_in_address', key: addressKey(request.ip), rate: app.config.rates.signInAddress };
      await take(reply, bucket, 'Too many attempts come from this address');
    }
  });
  // A later hook than above, so that an invalid body takes no token of the session, and because the e-mail address is
  // in the body, which is read only after `onRequest`.
  server.addHook('preHandler', async (request, reply) => {
    const { rateLimit } = request.routeOptions.config;
    if (rateLimit === 'sign-in' && request.caller) {
      const key = sessionKey(request.caller.credentialId);
      const bucket = { limit: 'sign_in_session', key, rate: app.config.rates.signInEmail };
      await take(reply, bucket, 'There were too many attempts with the password of this account');
    }
    const email = rateLimit === 'sign-in' || rateLimit === 'password' ? emailOf(request.body) : undefined;
    if (email === undefined) return;
    const { secret, rates } = app.config;
    const device = rateLimit === 'password' ? readDeviceCookie(request.headers.cookie, email, secret) : undefined;
    const own = device === undefined ? emailKey(email, request.ip) : deviceKey(device);
    const bucket = { limit: 'sign_in_email', key: own, rate: rates.signInEmail };
    await take(reply, bucket, 'There were too many attempts with this e-mail address from here');
    if (rateLimit !== 'password' || device !== undefined) return;
    const unknown = { limit: 'sign_in_unknown', key: unknownKey(email), rate: rates.signInUnknown };
    await take(
      reply,
      unknown,
      'There were too many attempts with this e-mail address from browsers that never signed in',
    );
  });
}

/**
 * Sets the RateLimit headers. When a request uses several buckets, the headers describe the bucket with the fewest
 * tokens left. Throws `rate_limited` when the bucket was empty.
 */
function apply(reply: FastifyReply, verdict: Verdict, refusal: string): void {
  const told = reply.getHeader('ratelimit-remaining');
  if (told === undefined || !verdict.isAllowed || verdict.remaining < Number(told)) {
    reply.header('ratelimit-limit', String(verdict.limit));
    reply.header('ratelimit-remaining', String(verdict.remaining));
    reply.header('ratelimit-reset', String(verdict.resetSec));
  }
  if (verdict.isAllowed) return;
  const { retryAfterSec } = verdict;
  throw new ServiceError('rate_limited', `${refusal}. Retry in ${retryAfterSec} s.`, { retryAfterSec });
}
