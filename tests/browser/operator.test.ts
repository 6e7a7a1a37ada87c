// Tests the operator's pages of the dashboard: who may open them, and what they do to accounts and hosts.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { before, describe, it } from 'node:test';
import type { AccountDetails, HostSummaryList } from '@sandbar/contract/admin.ts';
import type { Locator, Page } from 'playwright-core';
import { createAccount, operator, type TestAccount } from '../e2e/support/accounts.ts';
import { BASE_URL } from '../e2e/support/service.ts';
import { assertAccessible } from './support/accessibility.ts';
import { withPage } from './support/browser.ts';
import { keepScreenshots } from './support/screenshots.ts';

let admin: TestAccount;
let ordinary: TestAccount;
before(async () => {
  [admin, ordinary] = await Promise.all([createAccount(), createAccount({ tier: 'free', billing_mode: 'prepaid' })]);
  await operator('POST', `/admin/accounts/${admin.account_id}/operator`, { is_operator: true });
});

const details = ({ account_id }: TestAccount) => operator<AccountDetails>('GET', `/admin/accounts/${account_id}`);
const openAccount = async (page: Page, account: TestAccount) => {
  await page.goto(`/accounts?q=${account.account_id}`);
  await page.getByRole('link', { name: account.email }).click();
  return page.getByRole('dialog', { name: account.email });
};
const secretOf = async (dialog: Locator, name: string) =>
  (await dialog.getByRole('region', { name }).locator('code').textContent()) ?? '';
const signInStatus = async (email: string, password: string) => {
  const body = JSON.stringify({ email, password });
  const headers = { 'content-type': 'application/json' };
  return (await fetch(`${BASE_URL}/v1/auth/sign-in`, { method: 'POST', headers, body })).status;
};

describe('the pages of the operator', () => {
  it('are hidden from an ordinary account, and refuse it without a request', async () => {
    await withPage({ account: ordinary }, async (page) => {
      const asked: string[] = [];
      page.on('request', (request) => {
        if (request.url().includes('/admin/')) asked.push(request.url());
      });
      for (const path of ['/accounts', '/hosts', '/health']) {
        await page.goto(path);
        await page.getByRole('heading', { name: 'For operators only' }).waitFor();
        assert.equal(await page.getByRole('link', { name: 'Hosts' }).count(), 0);
      }
      assert.deepEqual(asked, []);
    });
  });

  it('are in the menu of an account that the owner named an operator', async () => {
    await withPage({ account: admin }, async (page) => {
      await page.goto('/machines');
      for (const name of ['Accounts', 'Hosts', 'Health']) {
        await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name }).click();
        await page.getByRole('heading', { name, level: 1 }).waitFor();
      }
    });
  });

  it('pass axe in both themes and widths', async () => {
    const heading = (name: string) => (page: Page) => page.getByRole('heading', { name }).waitFor();
    const shots = { account: admin, check: assertAccessible };
    await keepScreenshots('operator-accounts', {
      ...shots,
      path: `/accounts?q=${admin.email}`,
      ready: (page) => page.getByRole('link', { name: admin.email }).waitFor(),
    });
    await keepScreenshots('operator-account', {
      ...shots,
      path: `/accounts?account=${ordinary.account_id}`,
      ready: heading('Limits'),
    });
    await keepScreenshots('operator-hosts', {
      ...shots,
      path: '/hosts',
      ready: (page) => page.getByRole('button', { name: 'Cordon' }).waitFor(),
    });
    await keepScreenshots('operator-health', {
      ...shots,
      path: '/health',
      ready: (page) => page.getByText('Everything is in order.').waitFor(),
    });
    await keepScreenshots('operator-refused', {
      ...shots,
      account: ordinary,
      path: '/hosts',
      ready: heading('For operators only'),
    });
  });
});

describe('the page of accounts', () => {
  it('makes an account, and shows its key and password once', async () => {
    const email = `made-${randomUUID()}@example.test`;
    await withPage({ account: admin }, async (page) => {
      await page.goto('/accounts');
      await page.getByRole('button', { name: 'Create an account' }).click();
      await page.getByLabel('E-mail', { exact: true }).fill(email);
      await page.getByLabel('Tier').selectOption('payg');
      await page.getByLabel('First credit').fill('7.50');
      await page.getByRole('button', { name: 'Create the account' }).click();
      const secrets = page.getByRole('alertdialog', { name: email });
      const password = await secretOf(secrets, 'Password');
      const key = await secretOf(secrets, 'API key');
      assert.equal(await signInStatus(email, password), 200);
      const answer = await fetch(`${BASE_URL}/v1/account`, { headers: { authorization: `Bearer ${key}` } });
      const { tier, balance } = (await answer.json()) as { tier: string; balance: string };
      assert.deepEqual([tier, balance], ['payg', '7.500000']);
      // Neither Escape nor a click beside the dialog may lose the secrets.
      await page.keyboard.press('Escape');
      await page.mouse.click(5, 5);
      await secrets.getByText(password).waitFor();
      await secrets.getByRole('button', { name: 'I have copied them' }).click();
      await secrets.waitFor({ state: 'detached' });
      const left = await page.evaluate(() => document.documentElement.outerHTML);
      assert.ok(!left.includes(password) && !left.includes(key));
      await page.getByLabel('E-mail or id').fill(email);
      await page.getByRole('link', { name: email }).waitFor();
    });
  });

  it('credits an account once for a reference', async () => {
    const reference = `transfer ${randomUUID()}`;
    await withPage({ account: admin }, async (page) => {
      const credit = (await openAccount(page, ordinary)).getByRole('form', { name: 'Credit' });
      for (const said of [/^Done\. The balance is .*12\.34/, /was there already.*Nothing was changed/]) {
        await credit.getByLabel('EUR').fill('12.34');
        await credit.getByLabel('As').selectOption('bonus');
        await credit.getByLabel('Reference').fill(reference);
        await credit.getByRole('button', { name: 'Credit' }).click();
        await credit.getByText(said).waitFor();
      }
      await credit.getByLabel('EUR').fill('1');
      await credit.getByRole('button', { name: 'Credit' }).click();
      await credit.getByText(/reference belongs to a different entry/).waitFor();
    });
    assert.equal((await details(ordinary)).balance, '12.340000');
  });

  it('sets the tier, the limits and the rates, and gives a limit back to the tier', async () => {
    await withPage({ account: admin }, async (page) => {
      const limits = (await openAccount(page, ordinary)).getByRole('form', { name: 'Limits' });
      await limits.getByLabel('Tier').selectOption('payg');
      await limits.getByLabel('Machines').fill('7');
      await limits.getByLabel('Jobs started a second').fill('3');
      await limits.getByRole('button', { name: 'Save the limits' }).click();
      await limits.getByText('Now 7.').waitFor();
      const set = await details(ordinary);
      assert.deepEqual([set.tier, set.limits.machines.override, set.rates.exec.override], ['payg', 7, 3]);
      await limits.getByLabel('Machines').fill('');
      await limits.getByRole('button', { name: 'Save the limits' }).click();
      await limits
        .getByText(/Now \d+, by the tier\./)
        .first()
        .waitFor();
      await limits.getByText('Now 7.').waitFor({ state: 'detached' });
    });
    assert.equal((await details(ordinary)).limits.machines.override, null);
  });

  it('keeps what was chosen, with the reason, when the tier is refused after the limits were set', async () => {
    const account = await createAccount({ tier: 'free' });
    await withPage({ account: admin }, async (page) => {
      await page.route('**/tier', (route) =>
        route.fulfill({ status: 409, json: { code: 'conflict', detail: 'Not this tier.' } }),
      );
      const limits = (await openAccount(page, account)).getByRole('form', { name: 'Limits' });
      await limits.getByLabel('Tier').selectOption('enterprise');
      await limits.getByLabel('Volumes').fill('9');
      // Another operator changes another limit meanwhile.
      await operator('POST', `/admin/accounts/${account.account_id}/limits`, { machines: 5 });
      await limits.getByRole('button', { name: 'Save the limits' }).click();
      await limits.getByRole('alert').getByText('Not this tier.').waitFor();
      await limits.getByText('Now 9.').waitFor();
      assert.equal(await limits.getByLabel('Tier').inputValue(), 'enterprise');
      const { machines, volumes } = (await details(account)).limits;
      assert.deepEqual([machines.override, volumes.override], [5, 9]);
    });
  });

  it('suspends an account after a question, resumes it, and resets its password', async () => {
    const account = await createAccount();
    await withPage({ account: admin }, async (page) => {
      const dialog = await openAccount(page, account);
      await dialog.getByRole('button', { name: 'Suspend' }).click();
      const question = page.getByRole('alertdialog', { name: 'Suspend this account?' });
      await question.getByRole('button', { name: 'Suspend' }).click();
      await dialog.getByText('It can only read').waitFor();
      assert.notEqual((await details(account)).suspended_at, null);
      await dialog.getByRole('button', { name: 'Resume' }).click();
      await dialog.getByRole('button', { name: 'Suspend' }).waitFor();
      assert.equal((await details(account)).suspended_at, null);

      await dialog.getByRole('button', { name: 'Reset the password' }).click();
      const reset = page.getByRole('alertdialog', { name: 'Reset the password of this account?' });
      await reset.getByRole('button', { name: 'Reset the password' }).click();
      const secrets = page.getByRole('alertdialog', { name: account.email });
      const password = await secretOf(secrets, 'Password');
      assert.deepEqual(
        [await signInStatus(account.email, account.password), await signInStatus(account.email, password)],
        [401, 200],
      );
    });
  });

  it('says why the account of an operator cannot be changed here', async () => {
    await withPage({ account: admin }, async (page) => {
      const dialog = await openAccount(page, admin);
      for (const name of ['Suspend', 'Reset the password', 'Save the limits']) {
        await dialog.getByRole('button', { name }).and(page.locator('[aria-disabled=true]')).waitFor();
      }
      await page.getByText('changed with sandbar admin account').first().waitFor({ state: 'attached' });
      await dialog.getByRole('button', { name: 'Credit' }).and(page.locator('[aria-disabled=false]')).waitFor();
    });
  });
});

describe('the page of hosts', () => {
  it('cordons the host and lets it take machines again', async () => {
    const states = async () =>
      (await operator<HostSummaryList>('GET', '/admin/hosts')).hosts.map(({ id, state }) => ({ id, state }));
    const [host] = await states();
    assert.ok(host);
    try {
      await withPage({ account: admin }, async (page) => {
        await page.goto('/hosts');
        const card = page.getByRole('region', { name: `Host ${host.id}` });
        await card.getByText(/\d+ of \d+ MiB reserved/).waitFor();
        await card.getByRole('button', { name: 'Cordon' }).click();
        await card.getByText('cordoned', { exact: true }).waitFor();
        assert.deepEqual(await states(), [{ id: host.id, state: 'cordoned' }]);
        await card.getByRole('button', { name: 'Take new machines again' }).click();
        await card.getByText('ready', { exact: true }).waitFor();
        assert.deepEqual(await states(), [{ id: host.id, state: 'ready' }]);
      });
    } finally {
      await operator('POST', `/admin/hosts/${host.id}/uncordon`, {});
    }
  });
});
