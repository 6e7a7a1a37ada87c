// Tests the page of quotas.
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import type { Volume } from '@sandbar/contract/volume.ts';
import type { Locator, Page } from 'playwright-core';
import { createAccount, operator, type TestAccount } from '../e2e/support/accounts.ts';
import { assertAccessible } from './support/accessibility.ts';
import { NARROW, withPage } from './support/browser.ts';
import { keepScreenshots } from './support/screenshots.ts';

describe('the page of quotas', () => {
  let account: TestAccount;
  before(async () => {
    account = await createAccount({ tier: 'free' });
    await operator('POST', `/admin/accounts/${account.account_id}/limits`, { vcpus: 3 });
  });

  it('shows the limit of the tier, or that of the account beside it', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/quotas');
      await quota(page, 'machines').getByText('0 of 3', { exact: true }).waitFor();
      await quota(page, 'machines').getByText('The limit is that of the tier free.').waitFor();
      await quota(page, 'vcpus').getByText('0 of 3', { exact: true }).waitFor();
      await quota(page, 'vcpus').getByText('that of the tier free is 4').waitFor();
      await quota(page, 'memory_mb').getByText('0 of 4,096').waitFor();
    });
  });

  it('follows the use without a reload', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/quotas');
      const bar = page.getByRole('meter', { name: 'Storage (GiB)' });
      await quota(page, 'storage_gb').getByText('0 of 30').waitFor();
      const { id } = await account.call<Volume>('POST', '/v1/volumes', { size_gb: 15 });
      await quota(page, 'storage_gb').getByText('15 of 30').waitFor();
      assert.equal(await bar.getAttribute('aria-valuetext'), '15 of 30');
      assert.equal(await bar.getAttribute('aria-valuenow'), '50');
      await account.call('DELETE', `/v1/volumes/${id}`);
      await quota(page, 'storage_gb').getByText('0 of 30').waitFor();
    });
  });

  it('brings the quota that the URL names into view and marks it', async () => {
    await withPage({ account, size: { ...NARROW, height: 420 } }, async (page) => {
      await page.goto('/quotas#volumes');
      const named = quota(page, 'volumes');
      await named.waitFor();
      await page.waitForFunction(() => {
        const { top = 0, bottom = 0 } = document.getElementById('volumes')?.getBoundingClientRect() ?? {};
        return top >= 0 && bottom <= innerHeight;
      });
      assert.notEqual(await borderOf(named), await borderOf(quota(page, 'machines')));
    });
  });

  it('passes axe with low, high and full quotas', async () => {
    for (const size_gb of [20, 10]) await account.call('POST', '/v1/volumes', { size_gb });
    await keepScreenshots('quotas', {
      account,
      path: '/quotas#storage_gb',
      ready: (page) => quota(page, 'storage_gb').getByText('30 of 30').waitFor(),
      check: assertAccessible,
    });
  });
});

const quota = (page: Page, name: string): Locator => page.locator(`#${name}`);

const borderOf = (element: Locator): Promise<string> =>
  element.evaluate((found) => getComputedStyle(found).borderTopColor);
