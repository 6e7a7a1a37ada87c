// Tests the billing page, and what a person without money sees, against the running service.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { Page } from 'playwright-core';
import { createAccount, destroyMachines, operator, type TestAccount } from '../e2e/support/accounts.ts';
import { assertAccessible } from './support/accessibility.ts';
import { withPage } from './support/browser.ts';
import { keepScreenshots } from './support/screenshots.ts';

const credit = (account: TestAccount, eur: string) =>
  operator('POST', `/admin/accounts/${account.account_id}/credit`, {
    eur,
    as: 'top-up',
    reference: `test ${account.email}`,
  });

const balance = (page: Page) => page.getByRole('region', { name: 'Balance' });
const byDay = (page: Page) => page.getByRole('region', { name: 'Usage by day' }).first();

/** An account whose machine is metered while the first tests run, because the service charges every half minute. */
let measured: TestAccount;
before(async () => {
  measured = await createAccount({ billing_mode: 'prepaid', credit_eur: '20' });
  await measured.createMachine({ name: 'measured', metadata: { team: 'research' } });
});
after(() => destroyMachines(measured));

describe('without money', () => {
  let account: TestAccount;
  before(async () => {
    account = await createAccount({ billing_mode: 'prepaid' });
  });
  after(() => destroyMachines(account));

  it('a create says why it was refused, leads to the top-up, and works after a credit', async () => {
    await withPage({ account }, async (page) => {
      const create = page.getByRole('button', { name: 'Create the machine' });
      const fill = async () => {
        await page.getByLabel('Name', { exact: true }).fill('paid-for');
        await page.getByLabel('Memory').fill('256');
      };
      await page.goto('/machines?new=true');
      await fill();
      await create.click();
      const refusal = page.getByRole('alert').filter({ hasText: 'balance' });
      await refusal.getByRole('link', { name: 'Top up the balance' }).click();
      await page.waitForURL(/\/billing$/);
      await balance(page).getByText('€0.00', { exact: true }).waitFor();
      await balance(page).getByRole('button', { name: 'Top up' }).waitFor();

      await page.goBack();
      await fill();
      await create.click();
      await refusal.waitFor();
      await credit(account, '5');
      // The same form sends the same idempotency key. The service must not replay the earlier refusal.
      await create.click();
      await page.waitForURL(/\/machines\/[0-9a-f-]{36}/);
      await page.getByRole('heading', { name: 'paid-for' }).waitFor();
    });
  });

  it('the top-up says that the operator adds credit where no payments are taken online', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/billing');
      const topUp = balance(page).getByRole('button', { name: 'Top up' });
      await topUp.dblclick();
      await page.getByRole('alert').filter({ hasText: 'its operator adds credit' }).waitFor();
      assert.equal(await topUp.getAttribute('aria-disabled'), 'true');
    });
  });

  it('the top-up of a suspended account says so, and can be tried again', async () => {
    const suspended = await createAccount({ billing_mode: 'prepaid' });
    await operator('POST', `/admin/accounts/${suspended.account_id}/suspend`, {});
    await withPage({ account: suspended }, async (page) => {
      await page.goto('/billing');
      const topUp = balance(page).getByRole('button', { name: 'Top up' });
      await topUp.click();
      await page.getByRole('alert').filter({ hasText: 'The account is suspended.' }).waitFor();
      assert.equal(await topUp.getAttribute('aria-disabled'), 'false');
    });
  });
});

describe('the billing page', () => {
  it('refuses a range whose first day is after its last, keeps the charts, and remembers a good range', async () => {
    await withPage({ account: measured }, async (page) => {
      await page.goto('/billing?from=2026-01-01&to=2026-01-31');
      await page.getByText('Nothing was used in this range.').first().waitFor();
      const from = page.getByLabel('From');
      await from.fill('2026-02-05');
      await page.getByRole('alert').filter({ hasText: 'The first day must not be after the last day.' }).waitFor();
      assert.equal(await from.getAttribute('aria-invalid'), 'true');
      assert.match(page.url(), /from=2026-01-01/);
      await from.fill('2024-01-01');
      await page.getByRole('alert').filter({ hasText: 'A range has at most 400 days.' }).waitFor();
      await from.fill('2026-01-20');
      await page.waitForURL(/from=2026-01-20/);
      await page.reload();
      assert.equal(await from.inputValue(), '2026-01-20');
    });
  });

  it('says how a visit to the payment provider ended', async () => {
    await withPage({ account: measured }, async (page) => {
      await page.goto('/billing?top-up=cancelled');
      await page.getByText('The payment was cancelled. Nothing was charged.').waitFor();
      await page.getByRole('button', { name: 'Dismiss' }).click();
      await page.waitForURL(/\/billing$/);
      await page.goto('/billing?card=cancelled');
      await page.getByText('No card was added.').waitFor();
      // The page goes on polling, because a bonus by the operator is not the bonus for a card.
      const look = () => page.waitForResponse((response) => response.url().includes('kind=bonus'));
      const first = look();
      await page.goto('/billing?card=done');
      await first;
      await look();
      await page.getByText('The card was added.').waitFor();
    });
  });
});

describe('the looks of the billing page', () => {
  for (const [name, options] of [
    ['unmetered', {}],
    ['empty-wallet', { billing_mode: 'prepaid' }],
  ] as const) {
    it(`of an account with ${name}`, async () => {
      await keepScreenshots(`billing-${name}`, {
        account: await createAccount(options),
        path: '/billing',
        ready: (page) => page.getByText('The ledger has no entries yet.').waitFor(),
        check: assertAccessible,
      });
    });
  }
});

describe('the use of a machine', () => {
  before(async () => {
    const hasCharge = async () =>
      (await measured.call<{ entries: unknown[] }>('GET', '/v1/billing/ledger?kind=charge')).entries.length > 0;
    while (!(await hasCharge())) await delay(500);
  });

  it('shows what was used by day, by kind and by a key of the metadata, with the numbers of each chart', async () => {
    await withPage({ account: measured }, async (page) => {
      await page.goto('/billing');
      await byDay(page).locator('canvas').waitFor();
      await page.getByText('The chart as a table').click();
      const days = page.getByRole('region', { name: 'Usage by day' }).getByRole('table');
      const today = new Date().toISOString().slice(0, 10);
      assert.match((await days.getByRole('row', { name: today }).textContent()) ?? '', /€0\.00[0-9]+/);
      for (const kind of ['vCPU', 'Memory', 'Storage']) {
        await page.getByRole('region', { name: 'Usage by Kind' }).getByRole('row', { name: kind }).waitFor();
      }
      await page.getByLabel("Key of the machines' metadata").fill('team');
      await page.getByRole('button', { name: 'Group' }).click();
      await page
        .getByRole('region', { name: 'Usage by team' })
        .getByRole('row', { name: /research vCPU/ })
        .waitFor();
      assert.match(page.url(), /tag=team/);
    });
  });

  it('opens a charge of the ledger to the lines of each resource, and filters by kind', async () => {
    await withPage({ account: measured }, async (page) => {
      await page.goto('/billing');
      await page.getByRole('button', { name: 'Charge' }).first().click();
      const line = page
        .getByRole('row', { name: /machine .* Memory/ })
        .getByRole('link')
        .first();
      assert.match((await line.getAttribute('href')) ?? '', /^\/machines\/[0-9a-f-]{36}/);
      await page.reload();
      await line.waitFor();
      await page.getByLabel('Kind', { exact: true }).selectOption('Bonus');
      const entries = page.getByRole('region', { name: 'Entries of the ledger' });
      await entries.getByRole('row', { name: /Bonus €20\.000000 €20\.000000/ }).waitFor();
      assert.equal(await entries.getByRole('button', { name: 'Charge' }).count(), 0);
    });
  });

  it('exports use and ledger as CSV', async () => {
    await withPage({ account: measured }, async (page) => {
      await page.goto('/billing');
      const save = async (name: string) => {
        const [download] = await Promise.all([
          page.waitForEvent('download'),
          page.getByRole('button', { name: `Download as CSV: ${name}` }).click(),
        ]);
        return { file: download.suggestedFilename(), text: await readFile(await download.path(), 'utf8') };
      };
      const use = await save('the usage by kind');
      assert.match(use.file, /^usage-\d{4}-\d\d-\d\d-\d{4}-\d\d-\d\d\.csv$/);
      assert.match(use.text, /^kind,.*\n/);
      assert.match(use.text, /\nmemory,/);
      const ledger = await save('the ledger');
      assert.equal(ledger.file, 'ledger.csv');
      assert.match(ledger.text, /,charge,-0\.00/);
      assert.match(ledger.text, /,bonus,20\.000000,20\.000000,/);
    });
  });
});
