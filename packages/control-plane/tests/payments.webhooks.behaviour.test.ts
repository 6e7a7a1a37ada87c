// Tests of the webhooks of payments: each report of Stripe is recorded in the ledger once, in whatever order they come.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, it, type TestContext } from 'node:test';
import fc from 'fast-check';
import { insertAccount } from '../src/accounts/store.ts';
import { postWebhook, StripeDouble, signatureOf } from './support/stripe-double.ts';
import {
  cardAdded,
  dispute,
  eventOf,
  idAtStripe,
  paid,
  paidLater,
  refund,
  type StripeEvent,
} from './support/stripe-events.ts';
import { startTestBed, TEST_ORIGIN } from './support/test-bed.ts';

const stripe = await StripeDouble.start();
const bed = await startTestBed({ config: { billing: stripe.config }, replicas: 2 });
const { db } = bed.plane.app;
const EUR = 1_000_000;

/** Makes a prepaid account of tier free. */
const makeAccount = () =>
  insertAccount(db, { email: `${randomUUID()}@example.test`, tier: 'free', billingMode: 'prepaid' });
/** Makes a payment at Stripe, whose webhook is not sent yet. */
const makePayment = (accountId: string): string => {
  const payment = idAtStripe('pi');
  stripe.payments.set(payment, { account_id: accountId });
  return payment;
};
const deliver = async (event: StripeEvent, replica = 0): Promise<number> => {
  const body = JSON.stringify(event);
  return (await postWebhook(bed.replicas[replica] ?? bed.plane, body, signatureOf(body))).status;
};
const deliverAll = async (events: readonly StripeEvent[]) => {
  for (const event of events) assert.equal(await deliver(event), 200);
};
const account = (id: string) => db.selectFrom('accounts').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
const balance = async (id: string) => (await account(id)).balance_micros;
const entries = async (id: string) =>
  (await db.selectFrom('ledger').selectAll().where('account_id', '=', id).orderBy('created_at').execute()).map(
    ({ kind, amount_micros, reference }) => [kind, amount_micros / EUR, reference],
  );
const counts = async () => [
  await db
    .selectFrom('ledger')
    .select(({ fn }) => fn.countAll().as('rows'))
    .execute(),
  await db
    .selectFrom('payment_events')
    .select(({ fn }) => fn.countAll().as('rows'))
    .execute(),
];

describe('a webhook', () => {
  it('with a wrong, missing or old signature is 400 and changes nothing', async () => {
    const accountId = await makeAccount();
    const body = JSON.stringify(paid(accountId, makePayment(accountId), 2500));
    const before = await counts();
    for (const [sent, signature] of [
      [body, undefined],
      [body, ''],
      [body, 'nonsense'],
      [body, 't=1,v1='],
      [body, signatureOf(body, { secret: 'whsec_another' })],
      [body, signatureOf(body, { ageSec: 301 })],
      [body, signatureOf(body).replace('v1=', 'v0=')],
      [body.replace('2500', '9900'), signatureOf(body)],
      [`${body} `, signatureOf(body)],
      ['', signatureOf('')],
      ['{', 't=1'],
    ] as const) {
      const answer = await postWebhook(bed.plane, sent, signature);
      assert.equal(answer.status, 400);
      assert.equal(((await answer.json()) as { code: string }).code, 'validation_error');
    }
    assert.deepEqual(await counts(), before);
    const answer = await postWebhook(bed.plane, body, signatureOf(body, { ageSec: 200 }));
    assert.equal(answer.status, 200, 'the body itself was good');
    assert.equal(await balance(accountId), 25 * EUR);
  });

  it('that is delivered many times at once to two replicas credits once', async () => {
    const accountId = await makeAccount();
    const payment = makePayment(accountId);
    const event = paid(accountId, payment, 1234);
    const statuses = await Promise.all(Array.from({ length: 10 }, (_, index) => deliver(event, index % 2)));
    assert.deepEqual(new Set(statuses), new Set([200]));
    assert.deepEqual(await entries(accountId), [['top-up', 12.34, `stripe:${payment}`]]);
    assert.deepEqual([(await account(accountId)).tier, await balance(accountId)], ['payg', 12.34 * EUR]);
  });

  it('with the id of an event that was handled already changes nothing', async () => {
    const accountId = await makeAccount();
    const event = paid(accountId, makePayment(accountId), 500);
    await deliverAll([event, { ...paid(accountId, makePayment(accountId), 900), id: event.id }]);
    assert.equal(await balance(accountId), 5 * EUR);
  });

  it('about a payment that another event reported already credits nothing more', async () => {
    const accountId = await makeAccount();
    const payment = makePayment(accountId);
    const events = [paid(accountId, payment, 500), paidLater(accountId, payment, 500), paid(accountId, payment, 500)];
    await Promise.all(events.map((event, index) => deliver(event, index % 2)));
    assert.equal(await balance(accountId), 5 * EUR);
  });

  it('that comes before the request for its page has returned credits once', async (t) => {
    const before = await balance(bed.accountId);
    const credited: number[] = [];
    const event = paid(bed.accountId, idAtStripe('pi'), 2000);
    t.after(() => {
      stripe.intercept = () => undefined;
    });
    stripe.intercept = async ({ path, params }) => {
      if (path !== '/v1/checkout/sessions') return undefined;
      assert.equal(params.get('metadata[account_id]'), bed.accountId);
      assert.equal(await deliver(event, 1), 200);
      credited.push((await balance(bed.accountId)) - before);
      return undefined;
    };
    const { status } = await bed.api('POST', '/v1/billing/top-ups', {
      ...{ key: null, body: { amount: '20' }, headers: { cookie: await bed.session(), origin: TEST_ORIGIN } },
    });
    assert.equal(status, 201);
    assert.equal(await deliver(event), 200);
    assert.deepEqual([credited, (await balance(bed.accountId)) - before], [[20 * EUR], 20 * EUR]);
  });

  it('of a page that is complete but not paid credits nothing until the money is there', async () => {
    const accountId = await makeAccount();
    const payment = makePayment(accountId);
    await deliverAll([paid(accountId, payment, 700, { payment_status: 'unpaid' })]);
    assert.deepEqual([await balance(accountId), (await account(accountId)).tier], [0, 'free']);
    await deliverAll([paidLater(accountId, payment, 700)]);
    assert.equal(await balance(accountId), 7 * EUR);
  });

  it('about something else is accepted and changes nothing', async () => {
    const accountId = await makeAccount();
    const metadata = { account_id: accountId };
    const before = await counts();
    await deliverAll([
      eventOf('checkout.session.expired', { mode: 'payment', payment_status: 'unpaid', metadata }),
      eventOf('charge.dispute.created', { id: 'dp_1', amount: 5, currency: 'eur', payment_intent: 'pi_1', metadata }),
      eventOf('payment_intent.succeeded', { id: 'pi_1', amount: 500, currency: 'eur', metadata }),
      eventOf('an.event.of.tomorrow', {}),
      paid(accountId, idAtStripe('pi'), 500, { mode: 'subscription' }),
    ]);
    assert.deepEqual(await counts(), before);
  });
});

describe('the first card', () => {
  it('grants 25 EUR once for an account, also for several cards at once, and leaves the tier', async () => {
    const accountId = await makeAccount();
    await Promise.all([0, 1, 0, 1].map((replica) => deliver(cardAdded(accountId), replica)));
    assert.deepEqual(await entries(accountId), [['bonus', 25, `card-bonus:${accountId}`]]);
    assert.equal((await account(accountId)).tier, 'free');
    await deliverAll([paid(accountId, makePayment(accountId), 500)]);
    assert.deepEqual([await balance(accountId), (await account(accountId)).tier], [30 * EUR, 'payg']);
  });
});

/** Every order of some events. */
function orders<T>(items: readonly T[]): T[][] {
  if (items.length === 0) return [[]];
  return items.flatMap((item, index) => orders(items.toSpliced(index, 1)).map((rest) => [item, ...rest]));
}

describe('a refund', () => {
  it('takes the money once, in every order of its events and the payment', async () => {
    for (const order of orders([0, 1, 2])) {
      const accountId = await makeAccount();
      const payment = makePayment(accountId);
      const id = idAtStripe('re');
      const events = [
        paid(accountId, payment, 2000),
        refund('refund.created', id, 'pending', payment, 500),
        refund('refund.updated', id, 'succeeded', payment, 500),
      ];
      await deliverAll(order.flatMap((index) => events[index] ?? []));
      assert.deepEqual(
        (await entries(accountId)).sort(),
        [
          ['refund', -5, `stripe:${id}`],
          ['top-up', 20, `stripe:${payment}`],
        ],
        order.join(),
      );
    }
  });

  it('that fails or is cancelled gives the money back once, in every order', async () => {
    for (const status of ['failed', 'canceled'] as const) {
      for (const order of orders([0, 1, 2])) {
        const accountId = await makeAccount();
        const payment = makePayment(accountId);
        const id = idAtStripe('re');
        const events = [
          paid(accountId, payment, 2000),
          refund('refund.created', id, 'pending', payment, 500),
          refund(status === 'failed' ? 'refund.failed' : 'refund.updated', id, status, payment, 500),
        ];
        await deliverAll([...order, ...order].flatMap((index) => events[index] ?? []));
        assert.deepEqual(
          (await entries(accountId)).sort(),
          [
            ['refund', -5, `stripe:${id}`],
            ['refund-reversal', 5, `stripe:${id}:reversal`],
            ['top-up', 20, `stripe:${payment}`],
          ],
          order.join(),
        );
      }
    }
  });

  it('takes the money as soon as it has begun', async () => {
    const accountId = await makeAccount();
    const payment = makePayment(accountId);
    await deliverAll([
      paid(accountId, payment, 2000),
      refund('refund.created', idAtStripe('re'), 'pending', payment, 500),
    ]);
    assert.equal(await balance(accountId), 15 * EUR);
  });

  it('that is reported only when it has failed adds nothing to the wallet', async () => {
    const accountId = await makeAccount();
    await deliverAll([refund('refund.failed', idAtStripe('re'), 'failed', makePayment(accountId), 500)]);
    assert.equal(await balance(accountId), 0);
  });

  it('can come in parts, and can leave the wallet below zero', async () => {
    const accountId = await makeAccount();
    const payment = makePayment(accountId);
    await deliverAll([
      refund('refund.created', idAtStripe('re'), 'succeeded', payment, 500),
      refund('refund.created', idAtStripe('re'), 'succeeded', payment, 700),
    ]);
    assert.equal(await balance(accountId), -12 * EUR);
    assert((await account(accountId)).empty_since);
  });
});

describe('a dispute', () => {
  it('takes the money, and gives it back when it is won, in every order', async () => {
    for (const order of orders([0, 1, 2])) {
      const accountId = await makeAccount();
      const payment = makePayment(accountId);
      const id = idAtStripe('dp');
      const events = [
        paid(accountId, payment, 2000),
        dispute('withdrawn', id, payment, 2000),
        dispute('reinstated', id, payment, 2000),
      ];
      await deliverAll(order.flatMap((index) => events[index] ?? []));
      assert.equal(await balance(accountId), 20 * EUR);
      assert.deepEqual(
        (await entries(accountId)).sort(),
        [
          ['dispute', -20, `stripe:${id}`],
          ['dispute-reversal', 20, `stripe:${id}:reversal`],
          ['top-up', 20, `stripe:${payment}`],
        ],
        order.join(),
      );
    }
  });
});

describe('any mixture of events', () => {
  it('repeated, shuffled and at once on two replicas gives the same ledger', async () => {
    await fc.assert(
      fc.asyncProperty(fc.infiniteStream(fc.nat(1000)), fc.boolean(), async (numbers, isAtOnce) => {
        const accountId = await makeAccount();
        const [first, second] = [makePayment(accountId), makePayment(accountId)];
        const [lost, failed, won] = [idAtStripe('re'), idAtStripe('re'), idAtStripe('dp')];
        const events = [
          ...[paid(accountId, first, 2000), paidLater(accountId, first, 2000), paid(accountId, second, 1001)],
          ...[
            refund('refund.created', lost, 'pending', first, 300),
            refund('refund.updated', lost, 'succeeded', first, 300),
          ],
          ...[
            refund('refund.created', failed, 'pending', first, 77),
            refund('refund.failed', failed, 'failed', first, 77),
          ],
          ...[dispute('withdrawn', won, second, 1001), dispute('reinstated', won, second, 1001)],
          ...[cardAdded(accountId), cardAdded(accountId)],
        ];
        const shuffled = [...events, ...events]
          .map((event) => ({ event, at: numbers.next().value ?? 0 }))
          .sort((a, b) => a.at - b.at);
        const send = ({ event, at }: (typeof shuffled)[number]) => deliver(event, at % 2);
        const statuses: number[] = [];
        if (isAtOnce) statuses.push(...(await Promise.all(shuffled.map(send))));
        else for (const one of shuffled) statuses.push(await send(one));
        assert.deepEqual(new Set(statuses), new Set([200]));
        assert.equal((await entries(accountId)).length, 8);
        assert.equal(await balance(accountId), (20 - 3 + 10.01 + 25) * EUR);
        const rows = await db.selectFrom('ledger').selectAll().where('account_id', '=', accountId).execute();
        assert.equal(
          rows.reduce((sum, row) => sum + row.amount_micros, 0),
          await balance(accountId),
        );
      }),
      { numRuns: 15 },
    );
  });
});

describe('an event that cannot be recorded', () => {
  it('is accepted, changes no wallet and is in the log, and counts when it is sent again and can be recorded', async () => {
    const accountId = await makeAccount();
    const payment = makePayment(accountId);
    const later = randomUUID();
    const early = paid(later, idAtStripe('pi'), 500);
    const events = [
      early,
      paid(accountId, payment, 500, { currency: 'usd' }),
      paid(accountId, payment, 500, { currency: null }),
      paid(accountId, payment, 500, { amount_total: null }),
      paid(accountId, payment, 500, { amount_total: 0.5 }),
      paid(accountId, payment, 500, { amount_total: -500 }),
      paid(accountId, payment, 500, { payment_intent: null }),
      paid(accountId, payment, 500, { metadata: {}, client_reference_id: null }),
      paid(accountId, payment, 500, { metadata: null, client_reference_id: null }),
      paid("not-an-id' or '1'='1", payment, 500),
      cardAdded(randomUUID()),
      refund('refund.created', idAtStripe('re'), 'succeeded', idAtStripe('pi'), 500),
      dispute('withdrawn', idAtStripe('dp'), idAtStripe('pi'), 500),
    ];
    const before = await counts();
    await deliverAll(events);
    assert.deepEqual(await counts(), before);
    const lines = bed
      .logged()
      .split('\n')
      .filter((line) => line.includes('a payment event was not recorded'));
    for (const { id } of events) {
      const line = lines.find((text) => text.includes(id));
      assert(line, id);
      assert.equal(JSON.parse(line).level, 50);
    }
    await db
      .insertInto('accounts')
      .values({ id: later, email: 'later@example.test', email_verified: true, tier: 'free', billing_mode: 'prepaid' })
      .execute();
    await deliverAll([early, early]);
    assert.equal(await balance(later), 5 * EUR);
  });

  it('because Stripe does not answer is 503, so that Stripe repeats it', async (t: TestContext) => {
    const accountId = await makeAccount();
    const event = refund('refund.created', idAtStripe('re'), 'succeeded', makePayment(accountId), 500);
    t.after(() => {
      stripe.intercept = () => undefined;
    });
    stripe.intercept = () => ({ status: 400, body: { error: { type: 'api_error', message: 'Try later' } } });
    assert.equal(await deliver(event), 503);
    assert.deepEqual(await entries(accountId), []);
    stripe.intercept = () => undefined;
    assert.equal(await deliver(event), 200);
    assert.equal(await balance(accountId), -5 * EUR);
  });
});

describe('money for an account that is suspended or deleted', () => {
  it('is recorded nevertheless', async () => {
    for (const column of ['suspended_at', 'deleted_at'] as const) {
      const accountId = await makeAccount();
      await db
        .updateTable('accounts')
        .set({ [column]: new Date() })
        .where('id', '=', accountId)
        .execute();
      await deliverAll([paid(accountId, makePayment(accountId), 500)]);
      assert.equal(await balance(accountId), 5 * EUR);
    }
  });
});
