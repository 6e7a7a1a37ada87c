// Payments through Stripe. People pay on pages of Stripe (Checkout), so card numbers never reach this service, and our
// pages need no script of Stripe. Everything that is made at Stripe carries the account's id as metadata. So a webhook
// itself says to which account the money belongs, even when it arrives before the request that made the page has
// returned.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { Stripe } from 'stripe';
import type { StripeConfig } from '../config.ts';
import type { OpenedPage, Payer, PaymentProvider } from './provider.ts';
import { ACCOUNT_ID, accountIdOf, readStripeEvent } from './stripe-events.ts';

/** How long a call to Stripe may take, milliseconds. A person waits for the page. */
const CALL_MS = 10_000;
/** Stripe's library repeats a call that failed, with the same idempotency key. */
const RETRIES = 2;
const CURRENCY = 'eur';

/** `publicUrl` is the origin to which Stripe's pages send the browser back. */
export function createStripeProvider(config: StripeConfig, publicUrl: string): PaymentProvider {
  const stripe = new Stripe(config.secretKey, {
    maxNetworkRetries: RETRIES,
    timeout: CALL_MS,
    telemetry: false,
    ...(config.apiBase && addressOf(config.apiBase)),
  });
  const ask = <T>(call: () => Promise<T>) => call().catch((error: unknown) => Promise.reject(toOurs(error, config)));
  const returnTo = (name: string) => ({
    success_url: `${publicUrl}/billing?${name}=done`,
    cancel_url: `${publicUrl}/billing?${name}=cancelled`,
  });
  return {
    openTopUpPage: (payer, cents) =>
      ask(() =>
        openPage(stripe, payer, {
          mode: 'payment',
          line_items: [
            { quantity: 1, price_data: { currency: CURRENCY, unit_amount: cents, product_data: { name: 'Credit' } } },
          ],
          payment_intent_data: { metadata: { [ACCOUNT_ID]: payer.accountId } },
          // The payer pays in euro, so that the wallet gets what was paid, and a refund has the same currency.
          adaptive_pricing: { enabled: false },
          ...returnTo('top-up'),
        }),
      ),
    openCardPage: (payer) =>
      ask(() =>
        openPage(stripe, payer, {
          mode: 'setup',
          payment_method_types: ['card'],
          setup_intent_data: { metadata: { [ACCOUNT_ID]: payer.accountId } },
          ...returnTo('card'),
        }),
      ),
    reports: {
      provider: 'stripe',
      read: (body, signature) => readStripeEvent(verify(stripe, body, signature, config.webhookSecret)),
      findAccountId: (paymentId) =>
        ask(async () => {
          try {
            return accountIdOf(await stripe.paymentIntents.retrieve(paymentId));
          } catch (error) {
            if (isMissing(error)) return undefined;
            throw error;
          }
        }),
    },
  };
}

function addressOf({ protocol, hostname, port }: URL) {
  const isPlain = protocol === 'http:';
  return { protocol: isPlain ? 'http' : 'https', host: hostname, port: port || (isPlain ? '80' : '443') } as const;
}

function verify(stripe: Stripe, body: Buffer, signature: string | undefined, secret: string): Stripe.Event {
  try {
    return stripe.webhooks.constructEvent(body, signature ?? '', secret);
  } catch (error) {
    throw new ServiceError('validation_error', 'The header Stripe-Signature does not match the body, or is too old.', {
      cause: error,
    });
  }
}

type PageParams = Stripe.Checkout.SessionCreateParams;

async function openPage(stripe: Stripe, payer: Payer, params: PageParams): Promise<OpenedPage> {
  const open = async (customerId: string): Promise<OpenedPage> => {
    const { url } = await stripe.checkout.sessions.create({
      ...params,
      customer: customerId,
      client_reference_id: payer.accountId,
      metadata: { [ACCOUNT_ID]: payer.accountId },
    });
    if (url === null) throw new Error('Stripe made a page without a URL.');
    return { url, customerId };
  };
  if (payer.customerId === null) return open(await makeCustomer(stripe, payer));
  try {
    return await open(payer.customerId);
  } catch (error) {
    // The customer was deleted at Stripe, or it was made with a test key and the service now has a live key.
    if (!isMissing(error, 'customer')) throw error;
    return open(await makeCustomer(stripe, payer));
  }
}

/** The idempotency key makes parallel and repeated requests of an account get the same customer. */
async function makeCustomer(stripe: Stripe, { accountId, email, customerId }: Payer): Promise<string> {
  const { id } = await stripe.customers.create(
    { email, metadata: { [ACCOUNT_ID]: accountId } },
    { idempotencyKey: `sandbar-customer-${accountId}-${customerId ?? 'first'}` },
  );
  return id;
}

/** True if Stripe has no object with the id of the call; with `param`, if it has none with the id in that parameter. */
const isMissing = (error: unknown, param?: string): boolean =>
  error instanceof Stripe.errors.StripeInvalidRequestError &&
  error.code === 'resource_missing' &&
  (param === undefined || error.param === param);

/**
 * Turns an error of Stripe into ours, with a cause for the log. Stripe shortens keys in its messages; a proxy may not.
 */
function toOurs(error: unknown, { secretKey }: StripeConfig): unknown {
  if (!(error instanceof Stripe.errors.StripeError)) return error;
  const { type, statusCode, code, requestId, message, detail } = error;
  const facts = [type, statusCode, code, requestId].filter(Boolean).join(' ');
  const cause = new Error(`${facts}: ${message}`.replaceAll(secretKey, '(the key)'), { cause: detail });
  return new ServiceError('payments_unavailable', 'The payment provider cannot be used now. Retry later.', { cause });
}
