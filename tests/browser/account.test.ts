// Tests the page of the account, with the change of the password.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { before, describe, it } from 'node:test';
import type { Locator, Page } from 'playwright-core';
import { createAccount, type TestAccount } from '../e2e/support/accounts.ts';
import { assertAccessible } from './support/accessibility.ts';
import { withPage } from './support/browser.ts';
import { keepScreenshots } from './support/screenshots.ts';
import { signIn } from './support/sign-in.ts';

describe('the page of the account', () => {
  let account: TestAccount;
  before(async () => {
    account = await createAccount();
  });

  it('shows who is signed in, and passes axe', async () => {
    await keepScreenshots('account', {
      account,
      path: '/account',
      ready: async (page) => {
        const main = page.getByRole('main');
        await main.getByText(account.email).waitFor();
        await main.getByText('unmetered: usage is recorded and nothing is charged').waitFor();
        await main.getByText(account.account_id).waitFor();
      },
      check: assertAccessible,
    });
  });

  it('refuses two different new passwords, a short one and a wrong current one, with the reason', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/account');
      const status = page.getByText('The password is changed');
      await change(page, account.password, 'one new password', 'another new password');
      await page.getByRole('alert').getByText('The two new passwords differ.').waitFor();
      const repeated = page.getByLabel('New password again');
      assert.equal(await repeated.getAttribute('aria-invalid'), 'true');
      assert.equal(await colorOf(repeated, 'border-top-color'), await colorOf(page.getByRole('alert'), 'color'));

      await change(page, account.password, 'short', 'short');
      const isShort = await page
        .getByLabel('New password', { exact: true })
        .evaluate((field: HTMLInputElement) => field.validity.tooShort);
      assert.ok(isShort, 'the browser refuses a short password');

      await change(page, 'not the password', 'one new password', 'one new password');
      await page.getByRole('alert').getByText('This is not your current password.').waitFor();
      assert.equal(await status.count(), 0);
    });
  });

  it('changes the password: this session stays, the others end, API keys stay valid', async () => {
    const password = `new ${randomUUID()}`;
    await withPage({ account }, async (other) => {
      await other.goto('/volumes');
      await other.getByRole('heading', { name: 'Volumes' }).waitFor();
      await withPage({ account }, async (page) => {
        await page.goto('/account');
        await change(page, account.password, password, password);
        await page.getByRole('status').getByText('The password is changed').waitFor();
        assert.equal(await page.getByLabel('New password', { exact: true }).inputValue(), '');
        const text = await page.evaluate(() => document.documentElement.outerHTML + location.href);
        assert.ok(!text.includes(password), 'the password is not in the page');
        await page.reload();
        await page.getByRole('heading', { name: 'Account', exact: true }).waitFor();
      });
      await other.waitForURL(/\/sign-in/);
      await signIn(other, account);
      await other.getByRole('alert').waitFor();
      await signIn(other, { ...account, password });
      await other.waitForURL(/\/volumes$/);
    });
    await account.call('GET', '/v1/machines');
  });
});

/** Fills in the form and sends it. */
async function change(page: Page, current: string, next: string, repeated: string): Promise<void> {
  await page.getByLabel('Current password').fill(current);
  await page.getByLabel('New password', { exact: true }).fill(next);
  await page.getByLabel('New password again').fill(repeated);
  await page.getByRole('button', { name: 'Change password' }).click();
}

const colorOf = (element: Locator, property: string): Promise<string> =>
  element.evaluate((found, name) => getComputedStyle(found).getPropertyValue(name), property);
