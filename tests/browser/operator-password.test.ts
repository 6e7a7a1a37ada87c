// Tests that the operator's pages ask for the password 15 minutes after it was checked, and what the page of health says.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { before, describe, it } from 'node:test';
import type { Audit, FailedOperationList } from '@sandbar/contract/admin.ts';
import { homePaths } from '@sandbar/contract/home.ts';
import { databaseUrlOf } from '@sandbar/service/supervise/definitions.ts';
import pg from 'pg';
import type { Page } from 'playwright-core';
import { createAccount, operator, type TestAccount } from '../e2e/support/accounts.ts';
import { HOME } from '../e2e/support/service.ts';
import { assertAccessible } from './support/accessibility.ts';
import { withPage } from './support/browser.ts';
import { keepScreenshots } from './support/screenshots.ts';

let admin: TestAccount;
/** Another operator, whose password is not asked for. */
let other: TestAccount;
before(async () => {
  [admin, other] = await Promise.all([createAccount(), createAccount()]);
  for (const { account_id } of [admin, other]) {
    await operator('POST', `/admin/accounts/${account_id}/operator`, { is_operator: true });
  }
});

/** Makes the database of the service say that the operator's password was checked 16 minutes ago in all sessions. */
async function ageSessions(): Promise<void> {
  const client = new pg.Client({ connectionString: databaseUrlOf(homePaths(HOME).postgresSocketDir) });
  await client.connect();
  try {
    const { rowCount } = await client.query(
      "update sessions set confirmed_at = now() - interval '16 minutes' where account_id = $1",
      [admin.account_id],
    );
    assert.ok(rowCount);
  } finally {
    await client.end();
  }
}

const dialogOf = (page: Page) => page.getByRole('dialog', { name: 'Confirm your password' });
async function confirm(page: Page, password: string): Promise<void> {
  await dialogOf(page).getByLabel('Password').fill(password);
  await dialogOf(page).getByRole('button', { name: 'Confirm' }).click();
}

describe('the password dialog', () => {
  it('opens 15 minutes after the sign-in, refuses a wrong password, and then shows the page', async () => {
    await withPage({ account: admin }, async (page) => {
      await ageSessions();
      await page.goto('/hosts');
      await dialogOf(page).getByLabel('Password').and(page.locator(':focus')).waitFor();
      await confirm(page, 'not the password');
      await dialogOf(page).getByText('This is not your password.').waitFor();
      assert.equal(await page.getByRole('button', { name: 'Cordon' }).count(), 0);
      await confirm(page, admin.password);
      await page.getByRole('button', { name: 'Cordon' }).waitFor();
      await dialogOf(page).waitFor({ state: 'detached' });
    });
  });

  it('opens above a form, and the form is then sent', async () => {
    const email = `made-${randomUUID()}@example.test`;
    await withPage({ account: admin }, async (page) => {
      await page.goto('/accounts');
      await page.getByRole('button', { name: 'Create an account' }).click();
      await page.getByLabel('E-mail', { exact: true }).fill(email);
      await ageSessions();
      await page.getByRole('button', { name: 'Create the account' }).click();
      await confirm(page, admin.password);
      await page.getByRole('alertdialog', { name: email }).getByText('Password').waitFor();
      await dialogOf(page).waitFor({ state: 'detached' });
    });
    const { accounts } = await operator<{ accounts: { email: string }[] }>('GET', '/admin/accounts');
    assert.equal(accounts.filter((account) => account.email === email).length, 1);
  });

  it('stays closed when the person closes it, keeps the dialog below it, and opens again on request', async () => {
    await withPage({ account: admin }, async (page) => {
      await page.goto(`/accounts?account=${admin.account_id}`);
      const account = page.getByRole('dialog', { name: admin.email });
      await account.getByRole('heading', { name: 'Limits' }).waitFor();
      await ageSessions();
      await dialogOf(page).waitFor();
      await page.keyboard.press('Escape');
      await dialogOf(page).waitFor({ state: 'detached' });
      await account.getByRole('heading', { name: 'Limits' }).waitFor();
      // Two requests that the page repeats are refused, and the dialog stays closed.
      for (let refused = 0; refused < 2; refused++) {
        await page.waitForResponse((answer) => answer.url().includes('/admin/v1/') && answer.status() === 403);
      }
      assert.equal(await dialogOf(page).count(), 0);
      await account.getByRole('button', { name: 'Close' }).click();
      await page.getByRole('button', { name: 'Confirm your password' }).click();
      await confirm(page, admin.password);
      await page.getByRole('button', { name: 'Confirm your password' }).waitFor({ state: 'detached' });
      await page.waitForResponse((answer) => answer.url().includes('/admin/v1/') && answer.status() === 200);
    });
  });

  it('sends an account without a password to its provider instead', async () => {
    await withPage({ account: other }, async (page) => {
      await page.route('**/admin/v1/**', (route) =>
        route.fulfill({ status: 403, json: { code: 'sign_in_required', detail: 'Sign in again.' } }),
      );
      const address = '**/v1/auth/oidc/sign-in?confirm=true';
      await page.route(address, (route) => route.fulfill({ contentType: 'text/html', body: 'the provider' }));
      await page.goto('/hosts');
      const dialog = page.getByRole('dialog', { name: 'Sign in again' });
      await dialog.getByText('Your account has no password.').waitFor();
      assert.equal(await dialog.getByLabel('Password').count(), 0);
      await dialog.getByRole('button', { name: 'Cancel' }).click();
      await page.getByRole('status').getByRole('button', { name: 'Sign in again' }).click();
      await dialog.getByRole('button', { name: 'Sign in again' }).click();
      await page.waitForURL(address);
    });
  });

  it('passes axe in both themes and widths', async () => {
    await keepScreenshots('operator-password', {
      account: admin,
      path: '/hosts',
      ready: async (page) => {
        await ageSessions();
        await page.reload();
        await dialogOf(page).waitFor();
      },
      check: assertAccessible,
    });
  });
});

describe('the page of health', () => {
  const id = randomUUID();
  const audit: Audit = {
    findings: [
      { area: 'quota', host_id: null, subject: '<b>x</b>', detail: 'It counts 2 machines, not 1.', fix: 'count anew' },
      { area: 'ledger', host_id: null, subject: id, detail: 'Its entries do not add up.', fix: null },
    ],
    not_looked_at: [{ host_id: id, why: 'it does not answer' }],
    looked_at: { hosts: 1, machines: 2, volumes: 0, snapshots: 0, accounts: 3 },
  };
  const failed: FailedOperationList = {
    operations: [
      {
        ...{ id, account_id: id, email: 'ada@example.test', host_id: id, machine_id: id, volume_id: null },
        ...{ snapshot_id: null, kind: 'stop', actor: 'user', attempts: 3, code: 'host_unavailable' },
        ...{ error: 'The host does not answer.', created_at: new Date().toISOString(), finished_at: null },
      },
    ],
  };
  const answerWith = async (page: Page) => {
    await page.route('**/admin/v1/audit', (route) => route.fulfill({ json: audit }));
    await page.route('**/admin/v1/failed-operations', (route) => route.fulfill({ json: failed }));
    await page.reload();
    await page.getByText('Findings: 2').waitFor();
  };

  it('says that everything is in order, as doctor does', async () => {
    await withPage({ account: other }, async (page) => {
      await page.goto('/health');
      await page.getByText('Everything is in order.').waitFor();
      await page.getByText(/^Looked at: .*hosts 1/).waitFor();
      const again = page.waitForResponse((answer) => answer.url().endsWith('/admin/v1/audit'));
      await page.getByRole('button', { name: 'Run again' }).click();
      assert.equal((await again).status(), 200);
    });
  });

  it('says what an audit found, which host it could not ask, and which operations failed', async () => {
    await withPage({ account: other }, async (page) => {
      await page.goto('/health');
      await answerWith(page);
      for (const text of [
        '<b>x</b>',
        'It counts 2 machines, not 1.',
        'The repair: count anew.',
        'No repair is safe.',
      ]) {
        await page.getByText(text).waitFor();
      }
      await page.getByText(`Host ${id} was not looked at: it does not answer.`).waitFor();
      await page.getByText('sandbar doctor --fix').waitFor();
      await page.getByText('The host does not answer.').waitFor();
      await page.getByText('host_unavailable, 3 attempts, will be tried again').waitFor();
    });
    await keepScreenshots('operator-findings', {
      account: other,
      path: '/health',
      ready: answerWith,
      check: assertAccessible,
    });
  });
});
