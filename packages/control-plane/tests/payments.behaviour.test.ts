// Tests of the pages for payments: top-ups and cards. stripe-mock checks every request to Stripe.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { readBillingConfig } from '../src/billing/config.ts';
import { ConfigError } from '../src/config-error.ts';
import { STRIPE_KEY, type StripeCall, StripeDouble, WEBHOOK_PATH, WEBHOOK_SECRET } from './support/stripe-double.ts';
import { startTestBed, TEST_ORIGIN, type TestBed } from './support/test-bed.ts';

const stripe = await StripeDouble.start();
const bed = await startTestBed({ config: { billing: stripe.config }, replicas: 2 });
const manual = await startTestBed();
const { db } = bed.plane.app;
const SESSIONS = '/v1/checkout/sessions';

const cookies = new Map([
  [bed, await bed.session()],
  [manual, await manual.session()],
]);
const post = async (to: TestBed, path: string, body?: unknown, replica = 0) =>
  to.api('POST', path, {
    ...{ key: null, headers: { cookie: cookies.get(to) ?? '', origin: TEST_ORIGIN } },
    ...{ body, plane: to.replicas[replica] ?? to.plane },
  });
const topUp = (amount: unknown, replica = 0) => post(bed, '/v1/billing/top-ups', { amount }, replica);
const lastSession = (): StripeCall => {
  const call = stripe.callsTo(SESSIONS).at(-1);
  assert(call);
  return call;
};
const customer = async () =>
  (await db.selectFrom('accounts').select('payment_customer').where('id', '=', bed.accountId).executeTakeFirstOrThrow())
    .payment_customer;

describe('the customer at Stripe', () => {
  it('is made once for an account, even by parallel requests on two replicas', async () => {
    const answers = await Promise.all([topUp('5', 0), topUp('5', 1), post(bed, '/v1/billing/card', undefined, 1)]);
    assert.deepEqual(
      answers.map(({ status }) => status),
      [201, 201, 201],
    );
    const sessions = stripe.callsTo(SESSIONS).slice(-3);
    assert.deepEqual(new Set(sessions.map(({ params }) => params.get('customer'))), new Set([await customer()]));
    const made = stripe.callsTo('/v1/customers').length;
    await topUp('5');
    assert.equal(stripe.callsTo('/v1/customers').length, made);
  });

  it('is made again when Stripe does not know it any more', async () => {
    const before = await customer();
    stripe.deleteCustomers();
    assert.equal((await topUp('5')).status, 201);
    assert.notEqual(await customer(), before);
    assert.equal(lastSession().params.get('customer'), await customer());
  });
});

describe('a top-up', () => {
  it('answers with a page of Stripe that takes the amount in cents and names the account', async () => {
    for (const [amount, cents] of [
      ['25', '2500'],
      ['12.5', '1250'],
      ['5', '500'],
      ['10000.00', '1000000'],
      ['9999.99', '999999'],
      ['8.29', '829'],
    ]) {
      const answer = await topUp(amount);
      assert.equal(answer.status, 201, answer.text);
      assert.match(answer.json.url, /^https:\/\/checkout\.stripe\.test\/cs_test_/);
      const { params } = lastSession();
      assert.equal(params.get('line_items[0][price_data][unit_amount]'), cents);
      assert.equal(params.get('line_items[0][price_data][currency]'), 'eur');
      assert.equal(params.get('mode'), 'payment');
      for (const name of ['client_reference_id', 'metadata[account_id]', 'payment_intent_data[metadata][account_id]']) {
        assert.equal(params.get(name), bed.accountId, name);
      }
      assert.equal(params.get('success_url'), `${TEST_ORIGIN}/billing?top-up=done`);
    }
    assert.deepEqual(await db.selectFrom('ledger').selectAll().execute(), [], 'a page changes no wallet');
  });

  it('of another amount or currency is 400 with the field, and asks Stripe for nothing', async () => {
    const before = stripe.calls.length;
    for (const amount of ['', '-5', '+5', '0', '4.99', '10000.01', '99999', '5.001', '5.0000001', '5,00', '1e1', '٥']) {
      const { status, json } = await topUp(amount);
      assert.deepEqual([status, json.code], [400, 'validation_error'], amount);
      assert.match(json.detail, /^amount must be /, amount);
    }
    for (const amount of [25, null, undefined, ['25']]) {
      const { status, json } = await topUp(amount);
      assert.equal(status, 400);
      assert.match(json.detail, /amount/);
    }
    const { status, json } = await post(bed, '/v1/billing/top-ups', { amount: '25', currency: 'USD' });
    assert.deepEqual([status, json.detail], [400, 'currency must be one of EUR.']);
    assert.equal(stripe.calls.length, before);
  });
});

describe('a card', () => {
  it('is added on a page of Stripe, whose setup names the account', async () => {
    const answer = await post(bed, '/v1/billing/card');
    assert.equal(answer.status, 201, answer.text);
    const { params } = lastSession();
    assert.equal(params.get('mode'), 'setup');
    assert.equal(params.get('payment_method_types[0]'), 'card');
    assert.equal(params.get('setup_intent_data[metadata][account_id]'), bed.accountId);
  });
});

describe('when Stripe fails', () => {
  it('a page is 503, and neither the answer nor the log has the keys', async (t) => {
    t.after(() => {
      stripe.intercept = () => undefined;
    });
    const message = `Invalid API Key provided: ${STRIPE_KEY}`;
    stripe.intercept = () => ({ status: 401, body: { error: { type: 'invalid_request_error', message } } });
    const answer = await topUp('5');
    assert.deepEqual([answer.status, answer.json.code], [503, 'payments_unavailable']);
    assert(answer.headers.get('retry-after'));
    assert.match(bed.logged(), /StripeAuthenticationError 401 req_test: Invalid API Key provided: \(the key\)/);
    for (const secret of [STRIPE_KEY, WEBHOOK_SECRET]) {
      assert(!bed.logged().includes(secret));
      assert(!answer.text.includes(secret));
    }
  });
});

describe('a service without a payment provider', () => {
  it('refuses both pages, because only the operator adds credit', async () => {
    for (const answer of [
      await post(manual, '/v1/billing/top-ups', { amount: '25' }),
      await post(manual, '/v1/billing/card'),
    ]) {
      const { status, json } = answer;
      assert.deepEqual([status, json.code], [403, 'forbidden']);
      assert.equal(json.detail, 'This service takes no payments online; its operator adds credit.');
    }
  });

  it('has no route for webhooks', async () => {
    const { status } = await manual.api('POST', WEBHOOK_PATH, { key: null, body: {} });
    assert.equal(status, 404);
  });
});

describe('the keys of Stripe', () => {
  const keys = { SANDBAR_STRIPE_SECRET_KEY: STRIPE_KEY, SANDBAR_STRIPE_WEBHOOK_SECRET: WEBHOOK_SECRET };

  it('must be set together and have the right prefixes, and no error quotes a key', () => {
    for (const [env, words] of [
      [{ SANDBAR_STRIPE_SECRET_KEY: 'sk_hush' }, /SANDBAR_STRIPE_WEBHOOK_SECRET is not set/],
      [{ SANDBAR_STRIPE_WEBHOOK_SECRET: 'whsec_hush' }, /SANDBAR_STRIPE_SECRET_KEY is not set/],
      [{ ...keys, SANDBAR_STRIPE_SECRET_KEY: 'pk_live_hush' }, /SANDBAR_STRIPE_SECRET_KEY must be/],
      [{ ...keys, SANDBAR_STRIPE_WEBHOOK_SECRET: 'sk_hush' }, /SANDBAR_STRIPE_WEBHOOK_SECRET must be/],
      [{ ...keys, SANDBAR_STRIPE_API_BASE: 'ftp://u:hush@x' }, /SANDBAR_STRIPE_API_BASE must be/],
      [{ ...keys, SANDBAR_STRIPE_API_BASE: 'http://hush.example' }, /SANDBAR_STRIPE_API_BASE must begin with https/],
    ] as const) {
      assert.throws(
        () => readBillingConfig(env),
        (error) => error instanceof ConfigError && words.test(error.message) && !error.message.includes('hush'),
      );
    }
    assert.equal(readBillingConfig({}).payments, undefined);
    assert.equal(readBillingConfig(keys).payments?.secretKey, STRIPE_KEY);
    const apiBase = (url: string) =>
      readBillingConfig({ ...keys, SANDBAR_STRIPE_API_BASE: url }).payments?.apiBase?.href;
    assert.equal(apiBase('http://127.0.0.1:12111'), 'http://127.0.0.1:12111/');
    assert.equal(apiBase('https://proxy.example'), 'https://proxy.example/');
  });
});
