// Tests the list of machines in a browser: it follows the API, keeps its filters in the URL, and acts on several.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Locator, Page } from 'playwright-core';
import { createAccount, destroyMachines, type TestAccount } from '../e2e/support/accounts.ts';
import { BASE_URL } from '../e2e/support/service.ts';
import { assertAccessible } from './support/accessibility.ts';
import { withPage } from './support/browser.ts';
import { whilePaused } from './support/paused.ts';
import { keepScreenshots } from './support/screenshots.ts';

const rowOf = (page: Page, name: string): Locator => page.getByRole('row').filter({ hasText: name });
const names = (page: Page) => page.getByRole('region', { name: 'Machines' }).getByRole('link').allTextContents();

describe('the list of machines', () => {
  let account: TestAccount;
  before(async () => {
    account = await createAccount();
  });
  after(() => destroyMachines(account));

  it('is empty in a new account, and shows how to make a machine', async () => {
    const { origin } = new URL(BASE_URL);
    await keepScreenshots('machines-empty', {
      account,
      path: '/machines',
      ready: async (page) => {
        await page.getByText('There are no machines yet.').waitFor();
        await page.getByText(`curl -X POST ${origin}/v1/machines`).waitFor();
      },
      check: assertAccessible,
    });
  });

  it('shows a machine of the API within 3 seconds, and follows its states', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/machines');
      await page.getByText('There are no machines yet.').waitFor();
      const { id } = await account.createMachine({ name: 'follower' });
      const row = rowOf(page, 'follower');
      await row.getByText('running', { exact: true }).waitFor({ timeout: 3_000 });
      let stops: Promise<Machine>[] = [];
      await whilePaused(id, async () => {
        stops = [1, 2].map(() => account.call<Machine>('POST', `/v1/machines/${id}/stop`));
        await row.getByText('stopping…', { exact: true }).waitFor();
      });
      await Promise.all(stops);
      await row.getByText('stopped', { exact: true }).waitFor({ timeout: 3_000 });
      await account.call('POST', `/v1/machines/${id}/start`);
      await row.getByText('running', { exact: true }).waitFor({ timeout: 3_000 });
      await row.getByRole('link').click();
      const tabs = page.getByRole('navigation', { name: 'Parts of the machine' });
      await tabs.getByRole('link', { name: 'Activity' }).click();
      const entries = page.getByRole('list', { name: 'Activity, newest first' }).getByRole('listitem');
      await entries.filter({ hasText: 'Machine started' }).first().waitFor();
      assert.equal(await entries.filter({ hasText: 'Machine stopped' }).count(), 1, 'the second stop joined');
      await page.getByRole('link', { name: 'Machines' }).first().click();
      await account.call('DELETE', `/v1/machines/${id}`);
      await page.getByText('There are no machines yet.').waitFor({ timeout: 3_000 });
    });
  });

  it('shows one machine for two requests with the same idempotency key', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/machines');
      await page.getByText('There are no machines yet.').waitFor();
      const headers = {
        authorization: `Bearer ${account.api_key}`,
        'content-type': 'application/json',
        'idempotency-key': randomUUID(),
      };
      const body = JSON.stringify({ name: 'once', memory_mb: 256, rootfs_size_gb: 2 });
      const create = async () => {
        const response = await fetch(`${BASE_URL}/v1/machines`, { method: 'POST', headers, body });
        return ((await response.json()) as Machine).id;
      };
      const [first, second] = await Promise.all([create(), create()]);
      assert.equal(first, second);
      await rowOf(page, 'once').getByText('running', { exact: true }).waitFor();
      assert.deepEqual(await names(page), ['once']);
      await account.call('DELETE', `/v1/machines/${first}`);
    });
  });

  it('keeps filters and sorting over a reload, and shows different texts for no match and for no machines', async () => {
    await Promise.all([
      account.createMachine({ name: 'alpha', metadata: { team: 'web' } }),
      account.createMachine({ name: 'beta', metadata: { team: 'web', tier: 2 } }),
      account.createMachine({ name: 'gamma', metadata: { team: 'data' } }),
    ]);
    await withPage({ account }, async (page) => {
      await page.goto('/machines');
      const text = page.getByLabel('Name, id or metadata');
      await text.fill('team=WEB');
      await page.getByLabel('State').selectOption('running');
      await page.getByRole('button', { name: 'Name' }).click();
      await page
        .getByRole('columnheader', { name: 'Name', exact: false })
        .and(page.locator('[aria-sort=ascending]'))
        .waitFor();
      await page.getByRole('button', { name: 'Name' }).click();
      await page.locator('[aria-sort=descending]').waitFor();
      await page.reload();
      await rowOf(page, 'beta').waitFor();
      assert.deepEqual(await names(page), ['beta', 'alpha']);
      assert.equal(await text.inputValue(), 'team=WEB');
      assert.equal(await page.getByLabel('State').inputValue(), 'running');
      await page.getByLabel('State').selectOption('error');
      await page.getByText('No machine matches the filters.').waitFor();
      assert.equal(await page.getByText('There are no machines yet.').count(), 0);
      await page.getByRole('button', { name: 'Clear the filters' }).click();
      await rowOf(page, 'gamma').waitFor();
      assert.deepEqual(await names(page), ['gamma', 'beta', 'alpha'], 'the sorting stays');
    });
  });

  it('passes axe in both themes and widths', async () => {
    const { machines } = await account.call<{ machines: Machine[] }>('GET', '/v1/machines');
    const gamma = machines.find(({ name }) => name === 'gamma');
    await account.call('PATCH', `/v1/machines/${gamma?.id}`, { expires_in_sec: 86_400 });
    await account.call('POST', `/v1/machines/${gamma?.id}/stop`);
    await account.createMachine();
    await keepScreenshots('machines', {
      account,
      path: '/machines',
      ready: async (page) => {
        await rowOf(page, 'alpha').waitFor();
        await page.getByRole('checkbox').nth(1).check();
      },
      check: assertAccessible,
    });
  });

  it('destroys several machines after a question with their number, and keeps the reason of a failure', async () => {
    const { machines } = await account.call<{ machines: Machine[] }>('GET', '/v1/machines');
    const kept = machines.find(({ name }) => name === 'beta');
    await account.call('POST', `/v1/machines/${kept?.id}/snapshots`, {});
    await withPage({ account }, async (page) => {
      await page.goto('/machines');
      await page.getByRole('checkbox', { name: 'Select all' }).check();
      await page.getByText(`${machines.length} machines selected`).waitFor();
      await page.getByRole('button', { name: `Destroy ${machines.length}` }).click();
      const question = page.getByRole('alertdialog', { name: `Destroy ${machines.length} machines?` });
      await question.waitFor();
      // Another client destroys one of the machines. The question is still about all of them.
      await account.call('DELETE', `/v1/machines/${machines.find(({ name }) => name === 'alpha')?.id}`);
      await rowOf(page, 'alpha').waitFor({ state: 'detached' });
      await question.getByRole('button', { name: `Destroy ${machines.length} machines` }).click();
      const failure = page.getByRole('alert').filter({ hasText: 'beta' });
      await failure.getByText(/snapshot/).waitFor();
      await rowOf(page, 'gamma').waitFor({ state: 'detached' });
      assert.deepEqual(await names(page), ['beta']);
      assert.equal(await page.getByRole('alert').count(), 1, 'a machine that is gone already is no failure');
      // The failure outlives the next reading of the list.
      await page.waitForResponse(/\/v1\/machines$/);
      await failure.getByRole('button', { name: 'Dismiss' }).click();
      await failure.waitFor({ state: 'detached' });
      await account.call('DELETE', `/v1/machines/${kept?.id}?delete_snapshots=true`);
    });
  });
});
