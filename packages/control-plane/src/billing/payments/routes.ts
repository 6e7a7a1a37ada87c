// The routes of payments: two that open a page of the payment provider, and the one that its webhooks call.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { PaymentPage, TOP_UP_EUR, TopUpCreate } from '@sandbar/contract/billing.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { FastifyInstance } from 'fastify';
import { getAccount } from '../../accounts/store.ts';
import type { App } from '../../app.ts';
import { callerOf } from '../../http/auth.ts';
import { MICROS_PER_CENT, parseEur } from '../money.ts';
import { applyPaymentEvent } from './apply.ts';
import { createManualProvider } from './manual.ts';
import type { OpenedPage, Payer, PaymentProvider, PaymentReports } from './provider.ts';

const tags = ['Billing'];
const sessionHint = 'Or ask the operator of this service, who adds credit with `sandbar admin account credit`.';
const examplePage: PaymentPage = { url: 'https://checkout.stripe.com/c/pay/cs_live_a1b2c3' };

export async function addPaymentRoutes(server: FastifyInstance, app: App): Promise<void> {
  const provider = await createProvider(app);
  addPageRoutes(server, app, provider);
  if (provider.reports) await addWebhookRoute(server, app, provider.reports);
}

async function createProvider({ config }: App): Promise<PaymentProvider> {
  const { payments } = config.billing;
  if (payments === undefined) return createManualProvider();
  // Loaded only where it is used: Stripe's library takes 36 MB of memory.
  const { createStripeProvider } = await import('./stripe.ts');
  return createStripeProvider(payments, config.auth.publicUrl);
}

function addPageRoutes(untyped: FastifyInstance, app: App, provider: PaymentProvider): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  server.route({
    method: 'POST',
    url: '/v1/billing/top-ups',
    schema: {
      operationId: 'topUp',
      summary: 'Top up the wallet',
      description:
        'Answers with a page on which to pay. The wallet gets the money when the payment provider reports it, usually in ' +
        'seconds, and even if the page was closed. Each request makes another page. The first top-up moves an account of ' +
        'tier free to payg. 403 where the operator takes no payments online.',
      tags,
      body: TopUpCreate,
      response: { 201: PaymentPage },
    },
    config: {
      access: 'session',
      sessionHint,
      errors: ['payments_unavailable'],
      examples: { request: { amount: '25', currency: 'EUR' }, response: examplePage },
    },
    handler: async (request, reply) => {
      const cents = readCents(request.body.amount);
      const { accountId } = callerOf(request);
      return reply.code(201).send(await openPage(app, accountId, (payer) => provider.openTopUpPage(payer, cents)));
    },
  });

  server.route({
    method: 'POST',
    url: '/v1/billing/card',
    schema: {
      operationId: 'addCard',
      summary: 'Add a card',
      description:
        "Answers with a page on which to add a card. An account's first card grants 25 EUR, once, and leaves the tier as " +
        'it is. 403 where the operator takes no payments online.',
      tags,
      response: { 201: PaymentPage },
    },
    config: {
      access: 'session',
      sessionHint,
      errors: ['payments_unavailable'],
      examples: { response: examplePage },
    },
    handler: async (request, reply) =>
      reply.code(201).send(await openPage(app, callerOf(request).accountId, provider.openCardPage)),
  });
}

/**
 * The amount of a top-up in cents. Throws `validation_error`. The schema has checked that it has two decimals at most.
 */
function readCents(amount: string): number {
  const cents = parseEur(amount) / MICROS_PER_CENT;
  if (cents >= TOP_UP_EUR.min * 100 && cents <= TOP_UP_EUR.max * 100) return cents;
  throw new ServiceError('validation_error', `amount must be from ${TOP_UP_EUR.min} to ${TOP_UP_EUR.max} EUR.`);
}

/** Opens a page, and keeps the customer's id for the account's next page. */
async function openPage(
  { db }: App,
  accountId: string,
  open: (payer: Payer) => Promise<OpenedPage>,
): Promise<PaymentPage> {
  const { email, payment_customer: known } = await getAccount(db, accountId);
  const { url, customerId } = await open({ accountId, email, customerId: known });
  if (customerId !== known) {
    await db
      .updateTable('accounts')
      .set({ payment_customer: customerId })
      .where('id', '=', accountId)
      .where('payment_customer', 'is not distinct from', known)
      .execute();
  }
  return { url };
}

/** Not in the OpenAPI document: only the payment provider calls this route. */
async function addWebhookRoute(server: FastifyInstance, app: App, reports: PaymentReports): Promise<void> {
  // The signature covers the raw bytes of the body, so the route has a scope of its own in which no body is parsed.
  await server.register(async (raw) => {
    raw.removeAllContentTypeParsers();
    raw.addContentTypeParser<Buffer>('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));
    raw.route({
      method: 'POST',
      url: `/v1/billing/webhooks/${reports.provider}`,
      schema: { hide: true },
      config: { access: 'public', lenient: true },
      handler: async (request, reply) => {
        const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
        const signature = request.headers['stripe-signature'];
        const event = reports.read(body, typeof signature === 'string' ? signature : undefined);
        if (event) await applyPaymentEvent(app, reports, event);
        return reply.code(200).send();
      },
    });
  });
}
