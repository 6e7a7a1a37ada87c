// Tests payments on the billing page, with a control plane of its own that uses stripe-mock: however often a person
// clicks, one page of Stripe is opened, and what is paid there is credited once.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { Page } from 'playwright-core';
import { postWebhook, signatureOf } from '../../packages/control-plane/tests/support/stripe-double.ts';
import {
  cardAdded,
  idAtStripe,
  paid,
  type StripeEvent,
} from '../../packages/control-plane/tests/support/stripe-events.ts';
import { assertAccessible } from './support/accessibility.ts';
import { withPage } from './support/browser.ts';
import { makePrepaid, openBilling, startPaymentBed, writeHistory } from './support/payments.ts';
import { keepScreenshots } from './support/screenshots.ts';

const CHECKOUT = 'https://checkout.stripe.test/';
const SESSIONS = '/v1/checkout/sessions';

const payments = await startPaymentBed();
let made = 0;

/**
 * Opens the billing page of a new prepaid account. Requests to Stripe are delayed, so that there is time for a second
 * click.
 */
async function onBillingPage(
  work: (page: Page, accountId: string) => Promise<void>,
  allowed: readonly string[] = [],
): Promise<void> {
  const email = `payer-${++made}@example.test`;
  const accountId = await makePrepaid(payments, email);
  payments.stripe.intercept = async () => {
    await delay(300);
    return undefined;
  };
  await withPage({ service: payments.url, allowed: [`asked ${CHECKOUT}`, ...allowed] }, async (page, context) => {
    await context.route(`${CHECKOUT}**`, (route) => route.fulfill({ contentType: 'text/html', body: 'Pay here' }));
    await openBilling(page, email);
    await work(page, accountId);
  });
}

const sessionsOf = (accountId: string) =>
  payments.stripe.callsTo(SESSIONS).filter(({ params }) => params.get('client_reference_id') === accountId);

const deliver = async (event: StripeEvent) => {
  const body = JSON.stringify(event);
  assert.equal((await postWebhook(payments.bed.plane, body, signatureOf(body))).status, 200);
};

const ledgerOf = async (accountId: string) =>
  (await payments.bed.plane.app.db.selectFrom('ledger').selectAll().where('account_id', '=', accountId).execute()).map(
    ({ kind, amount_micros }) => [kind, amount_micros],
  );

const balance = (page: Page) => page.getByRole('region', { name: 'Balance' });

describe('a top-up', () => {
  it('opens one page of Stripe after a double click, and is credited once', async () => {
    await onBillingPage(async (page, accountId) => {
      await balance(page).getByLabel('Amount in EUR').fill('12.50');
      await balance(page).getByRole('button', { name: 'Top up' }).dblclick();
      await page.waitForURL(`${CHECKOUT}**`);
      const sessions = sessionsOf(accountId);
      assert.equal(sessions.length, 1);
      assert.equal(sessions[0]?.params.get('line_items[0][price_data][unit_amount]'), '1250');

      await page.goto(sessions[0]?.params.get('success_url') ?? '');
      await page.getByText('Waiting for the payment provider to report it…').waitFor();
      const payment = idAtStripe('pi');
      const event = paid(accountId, payment, 1250);
      await deliver(event);
      await page.getByText('€12.50 was added to the balance.').waitFor();
      await balance(page).getByText('€12.50', { exact: true }).waitFor();
      await deliver(event);
      await deliver(paid(accountId, payment, 1250));
      assert.deepEqual(await ledgerOf(accountId), [['top-up', 12_500_000]]);
      await page
        .getByRole('region', { name: 'Entries of the ledger' })
        .getByRole('row', { name: /Top-up/ })
        .waitFor();
    });
  });

  it('that Stripe refuses says so, and can be tried again', async () => {
    await onBillingPage(
      async (page, accountId) => {
        payments.stripe.intercept = () => ({ status: 500, body: { error: { type: 'api_error', message: 'broken' } } });
        const button = balance(page).getByRole('button', { name: 'Top up' });
        await button.click();
        await balance(page).getByRole('alert').waitFor();
        assert.equal(await button.getAttribute('aria-disabled'), 'false');
        payments.stripe.intercept = () => undefined;
        await button.click();
        await page.waitForURL(`${CHECKOUT}**`);
        assert.deepEqual(await ledgerOf(accountId), []);
      },
      ['status of 503'],
    );
  });

  it('can be opened again after the person came back without paying', async () => {
    await onBillingPage(async (page, accountId) => {
      const button = balance(page).getByRole('button', { name: 'Top up' });
      await button.click();
      await page.waitForURL(`${CHECKOUT}**`);
      await page.goto(sessionsOf(accountId)[0]?.params.get('cancel_url') ?? '');
      await page.getByText('The payment was cancelled. Nothing was charged.').waitFor();
      await button.click();
      await page.waitForURL(`${CHECKOUT}**`);
      assert.equal(sessionsOf(accountId).length, 2);
    });
  });
});

describe('a card', () => {
  it('opens one page of Stripe after a double click, and brings its bonus once', async () => {
    await onBillingPage(async (page, accountId) => {
      const count = () =>
        payments.stripe.callsTo(SESSIONS).filter(({ params }) => params.get('mode') === 'setup').length;
      const before = count();
      await balance(page).getByRole('button', { name: 'Add a card' }).dblclick();
      await page.waitForURL(`${CHECKOUT}**`);
      assert.equal(count() - before, 1);
      await page.goto(payments.stripe.callsTo(SESSIONS).at(-1)?.params.get('success_url') ?? '');
      await page.getByText('The card was added.').waitFor();
      await deliver(cardAdded(accountId));
      await page.getByText('€25.00 was added to the balance.').waitFor();
      await deliver(cardAdded(accountId));
      assert.deepEqual(await ledgerOf(accountId), [['bonus', 25_000_000]]);
    });
  });
});

describe('the looks of the billing page', () => {
  it('of an account with three weeks of use', async () => {
    const email = 'history@example.test';
    await writeHistory(payments, await makePrepaid(payments, email));
    await keepScreenshots('billing-history', {
      service: payments.url,
      fullPage: true,
      path: '/billing?tag=team',
      open: (page) => openBilling(page, email),
      ready: async (page) => {
        await page.locator('canvas').waitFor();
        await page.getByRole('region', { name: 'Usage by team' }).getByRole('row').nth(1).waitFor();
        await page.getByRole('button', { name: 'Charge' }).first().click();
        await page
          .getByRole('row', { name: /machine .* Memory/ })
          .first()
          .waitFor();
      },
      check: assertAccessible,
    });
  });
});
