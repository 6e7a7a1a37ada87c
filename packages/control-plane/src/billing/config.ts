// The environment variables of billing: the keys of the payment provider. Without keys, only the operator adds credit.
import { ConfigError } from '../config-error.ts';
import { allOrNone, type Env, readUrl } from '../environment.ts';

export type StripeConfig = {
  secretKey: string;
  /** Signs the webhooks of one endpoint. */
  webhookSecret: string;
  /** The address of Stripe's API; undefined: Stripe's own. Tests set the address of a test server. */
  apiBase: URL | undefined;
};

export type BillingConfig = {
  /** Undefined: no payments online. */
  payments: StripeConfig | undefined;
};

const SECRET_KEY = 'SANDBAR_STRIPE_SECRET_KEY';
const WEBHOOK_SECRET = 'SANDBAR_STRIPE_WEBHOOK_SECRET';
const API_BASE = 'SANDBAR_STRIPE_API_BASE';

/** Reads the variables. Throws `ConfigError`, which never quotes a key. */
export function readBillingConfig(env: Env): BillingConfig {
  return { payments: readStripe(env) };
}

function readStripe(env: Env): StripeConfig | undefined {
  const [secretKey, webhookSecret] = allOrNone(env, [SECRET_KEY, WEBHOOK_SECRET]);
  if (secretKey === undefined || webhookSecret === undefined) return undefined;
  // Without these checks, a publishable key or two swapped keys would be noticed only at the first payment.
  if (!/^[sr]k_\S+$/.test(secretKey)) {
    throw new ConfigError(`${SECRET_KEY} must be a secret or restricted key of Stripe, which begins with sk_ or rk_.`);
  }
  if (!/^whsec_\S+$/.test(webhookSecret)) {
    throw new ConfigError(`${WEBHOOK_SECRET} must be the secret of a webhook endpoint, which begins with whsec_.`);
  }
  return { secretKey, webhookSecret, apiBase: readApiBase(env) };
}

/** The address must be https unless it is on this computer, because the secret key is sent to it. */
function readApiBase(env: Env): URL | undefined {
  if (!env[API_BASE]) return undefined;
  const url = readUrl(env, API_BASE, ['https:', 'http:']);
  const isHere = ['127.0.0.1', '[::1]', 'localhost'].includes(url.hostname);
  if (url.protocol === 'https:' || isHere) return url;
  throw new ConfigError(`${API_BASE} must begin with https://, unless the server is on this computer.`);
}
