// Tests the activity feed.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { ActivityList } from '@sandbar/contract/activity.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Volume } from '@sandbar/contract/volume.ts';
import type { Page } from 'playwright-core';
import { createAccount, destroyMachines, operator, type TestAccount } from '../e2e/support/accounts.ts';
import { PATIENCE } from '../e2e/support/service.ts';
import { assertAccessible } from './support/accessibility.ts';
import { withPage } from './support/browser.ts';
import { run } from './support/in-machine.ts';
import { keepScreenshots } from './support/screenshots.ts';

/** Every round makes and deletes a volume, so there are two entries for each. A page of the API has 50. */
const ROUNDS = 60;

describe('the activity feed', () => {
  let account: TestAccount;
  let destroyed: Machine;
  let last: Volume;
  before(async () => {
    account = await createAccount();
    await operator('POST', `/admin/accounts/${account.account_id}/limits`, { rate_mutating: 1_000 });
    destroyed = await account.createMachine({ name: 'short-lived' });
    // The fields of the page count whole seconds, so the machine is destroyed in a later second than it was created.
    await run(account, destroyed.id, 'sleep 2');
    await account.call('DELETE', `/v1/machines/${destroyed.id}`);
    for (let round = 0; round < ROUNDS; round++) last = await makeVolume();
  });
  after(() => destroyMachines(account));

  it('combines its filters, which are in the URL and survive a reload', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/activity');
      await page.getByLabel('Action, actor or id').fill(last.id);
      await page.getByText('Volume created').waitFor();
      await page.waitForURL(new RegExp(`q=${last.id}`));
      assert.deepEqual(await actions(page), ['Volume deleted', 'Volume created']);
      await page.getByLabel('Category').selectOption({ label: 'Machines' });
      await page.getByText('No entry matches the filters.').waitFor();

      await page.getByLabel('Action, actor or id').fill(destroyed.id);
      await page.getByText('Machine destroyed').waitFor();
      assert.deepEqual(await actions(page), ['Machine destroyed', 'Machine created'], 'without the job');
      const { activity } = await account.call<ActivityList>('GET', `/v1/activity?category=machine&q=${destroyed.id}`);
      const [ended] = activity;
      assert.ok(ended);
      await page.getByLabel('From', { exact: true }).fill(localTime(new Date(ended.created_at)));
      await page.getByLabel('From', { exact: true }).press('Enter');
      await page.getByText('Machine created').waitFor({ state: 'detached' });
      await page.reload();
      await page.getByText('Machine destroyed').waitFor();
      assert.deepEqual(await actions(page), ['Machine destroyed']);
      const search = new URL(page.url()).searchParams;
      assert.deepEqual([...search.keys()].sort(), ['category', 'from', 'q']);

      const ago = (ms: number) => localTime(new Date(Date.parse(ended.created_at) - ms));
      await page.getByLabel('To', { exact: true }).fill(ago(60_000));
      await page.getByLabel('To', { exact: true }).press('Enter');
      await page.getByRole('alert').getByText('to must not be before from.').waitFor();
      await page.getByLabel('From', { exact: true }).fill(ago(120_000));
      await page.getByLabel('From', { exact: true }).press('Enter');
      await page.getByText('No entry matches the filters.').waitFor();
      await page.getByRole('button', { name: 'Clear the filters' }).click();
      await page.waitForURL(/\/activity$/);
      await page.getByText('Volume created').first().waitFor();
      assert.equal(await page.getByLabel('To', { exact: true }).inputValue(), '');
      await page.goto('/activity?category=nonsense&from=yesterday');
      await page.getByText('Volume created').first().waitFor();
    });
  });

  it('keeps the caret and the focus of its fields while the URL changes', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/activity');
      const text = page.getByLabel('Action, actor or id');
      await text.pressSequentially('voe');
      await text.press('ArrowLeft');
      await text.pressSequentially('lum');
      assert.equal(await text.inputValue(), 'volume');
      await page.waitForURL(/q=volume/);

      const [from, to] = [page.getByLabel('From', { exact: true }), page.getByLabel('To', { exact: true })];
      await from.fill(localTime(new Date(Date.now() + 3_600_000)));
      await to.focus();
      await page.getByText('No entry matches the filters.').waitFor();
      await to.and(page.locator(':focus')).waitFor();
      await page.getByRole('button', { name: 'Clear the filters' }).click();
      await page.getByText('Volume created').first().waitFor();
      assert.deepEqual([await text.inputValue(), await from.inputValue()], ['', '']);
    });
  });

  it('shows an action within 3 seconds without a reload', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/activity?category=volume');
      await page.getByText('Volume created').first().waitFor();
      const { id } = await makeVolume();
      await page
        .getByTitle(`volume ${id}`)
        .first()
        .waitFor({ timeout: 3_000 * PATIENCE });
    });
  });

  it('loads older entries while the list is scrolled, to the first entry of a destroyed machine', async () => {
    await withPage({ account }, async (page) => {
      const cursors: string[] = [];
      page.on('request', (request) => {
        const cursor = new URL(request.url()).searchParams.get('cursor');
        if (cursor !== null) cursors.push(cursor);
      });
      await page.goto('/activity');
      await page.getByText('Volume created').first().waitFor();
      assert.equal(cursors.length, 0);
      const list = page.getByRole('region', { name: 'Activity' });
      const first = page.getByRole('row').filter({ hasText: 'Machine created' });
      await list.hover();
      for (let turn = 0; turn < 300 && !(await first.isVisible()); turn++) await page.mouse.wheel(0, 1_000);
      assert.ok(cursors.length >= 2, 'pages were loaded by scrolling');
      assert.equal(new Set(cursors).size, cursors.length, 'no page was loaded twice');
      assert.equal(await page.getByRole('button', { name: 'Load older entries' }).count(), 0);
      assert.ok((await page.getByRole('row').count()) < 100, 'only the rows on the screen are in the document');
      await first.getByRole('link', { name: '(destroyed)' }).click();
      await page.waitForURL(`**/machines/${destroyed.id}`);
    });
  });

  it('passes axe in both themes and widths', async () => {
    await account.createMachine({ name: 'a machine with <b>a long name</b> that needs more room' });
    const ready = (page: Page) => page.getByRole('row').getByText('Machine created').waitFor();
    await keepScreenshots('activity', { account, path: '/activity', ready, check: assertAccessible });
  });

  it('explains an empty list with commands to run, and passes axe', async () => {
    await keepScreenshots('activity-empty', {
      account: await createAccount(),
      path: '/activity',
      ready: (page) => page.getByText('Nothing was done yet.').waitFor(),
      check: assertAccessible,
    });
  });

  async function makeVolume(): Promise<Volume> {
    const volume = await account.call<Volume>('POST', '/v1/volumes', { size_gb: 5 });
    await account.call('DELETE', `/v1/volumes/${volume.id}`);
    return volume;
  }
});

/** The actions that the rows show, from the first to the last. */
const actions = (page: Page): Promise<string[]> => page.getByRole('row').locator('td:nth-child(2)').allTextContents();

/**
 * Formats a time as a person types it into a field of the page, to the second. The browser has the time zone of this
 * process.
 */
function localTime(time: Date): string {
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}
