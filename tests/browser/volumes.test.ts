// Tests the page of volumes, with a running machine.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Volume } from '@sandbar/contract/volume.ts';
import type { Page } from 'playwright-core';
import { createAccount, destroyMachines, type TestAccount } from '../e2e/support/accounts.ts';
import { assertAccessible } from './support/accessibility.ts';
import { NARROW, withPage } from './support/browser.ts';
import { run } from './support/in-machine.ts';
import { assertFits } from './support/layout.ts';
import { choose, findAction, rowOf } from './support/lists.ts';
import { keepScreenshots } from './support/screenshots.ts';

describe('the page of volumes', () => {
  let account: TestAccount;
  let machine: Machine;
  before(async () => {
    account = await createAccount();
    machine = await account.createMachine({ name: 'worker' });
  });
  after(() => destroyMachines(account));

  it('explains an empty list with commands to run, and passes axe', async () => {
    await keepScreenshots('volumes-empty', {
      account,
      path: '/volumes',
      ready: (page) => page.getByText('There are no volumes yet.').waitFor(),
      check: assertAccessible,
    });
  });

  it('makes a volume, attaches it to a running machine, detaches it and deletes it', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/volumes');
      await page.getByRole('button', { name: 'New volume' }).click();
      const form = page.getByRole('dialog', { name: 'New volume' });
      await form.getByLabel('Name').fill('data');
      await form.getByLabel('Size in GiB').fill('5');
      await form.getByRole('button', { name: 'Create volume' }).click();
      const row = rowOf(page, 'data');
      await row.getByText('available').waitFor();
      await form.waitFor({ state: 'detached' });

      await attach(page, 'data', '/mnt/data');
      await row.getByText('attached').waitFor();
      await row.getByRole('link', { name: 'worker' }).waitFor();
      await row.getByText('/mnt/data').waitFor();
      assert.match(await run(account, machine.id, 'mount'), / on \/mnt\/data /);

      const remove = await findAction(page, 'data', 'Delete…');
      assert.equal(await remove.getAttribute('aria-disabled'), 'true');
      assert.match((await remove.textContent()) ?? '', /It is attached: detach it first\./);
      await page.keyboard.press('Escape');

      await choose(page, 'data', 'Detach');
      await row.getByText('available').waitFor();
      assert.doesNotMatch(await run(account, machine.id, 'mount'), / on \/mnt\/data /);

      await choose(page, 'data', 'Delete…');
      const question = page.getByRole('alertdialog');
      await question.getByText('Its 5 GiB and everything on them are gone for good.').waitFor();
      await question.getByRole('button', { name: 'Delete volume' }).click();
      await page.getByText('There are no volumes yet.').waitFor();
    });
    const { volumes } = await account.call<{ volumes: Volume[] }>('GET', '/v1/volumes');
    assert.deepEqual(volumes, []);
  });

  it('keeps the form open with the reason when an attach is refused, and keeps a failed detach until it is dismissed', async () => {
    const volume = await account.call<Volume>('POST', '/v1/volumes', { name: 'busy', size_gb: 5 });
    await withPage({ account }, async (page) => {
      await page.goto('/volumes');
      await attach(page, 'busy', '/proc/data');
      const form = page.getByRole('dialog', { name: 'Attach' });
      await form.getByRole('alert').getByText('/proc').waitFor();
      assert.equal(await form.getByLabel('Mount path').inputValue(), '/proc/data');
      await form.getByLabel('Mount path').fill('/mnt/busy');
      await form.getByRole('button', { name: 'Attach' }).click();
      await rowOf(page, 'busy').getByText('attached').waitFor();

      const menu = await findAction(page, 'busy', 'Detach');
      // Somebody else detaches it while the menu is open, so the detach of this page is refused.
      await account.call('POST', `/v1/volumes/${volume.id}/detach`);
      await menu.click();
      const failure = page.getByRole('alert').filter({ hasText: 'busy' });
      await failure.getByText('The volume is not attached to a machine.').waitFor();
      await failure.getByRole('button', { name: 'Dismiss' }).click();
      await failure.waitFor({ state: 'detached' });
    });
  });

  it('keeps its filters in the URL, and shows different texts for no match and for an empty list', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/volumes');
      await page.getByLabel('Kind').selectOption({ label: 'Data volumes' });
      await page.getByLabel('State').selectOption('available');
      await page.waitForURL(/\?kind=data&state=available$/);
      await page.reload();
      await rowOf(page, 'busy').waitFor();
      await page.getByLabel('Kind').selectOption({ label: 'Kept root disks' });
      await page.getByText('No volume matches the filters.').waitFor();
      await page.getByRole('button', { name: 'Clear the filters' }).click();
      await page.waitForURL(/\/volumes$/);
      await rowOf(page, 'busy').waitFor();
      await page.goto('/volumes?kind=nonsense');
      await rowOf(page, 'busy').waitFor();
    });
  });

  it('shows volumes of all kinds, and passes axe', async () => {
    await account.call('POST', '/v1/volumes', {
      name: 'a volume with <b>a long name</b> that needs more room',
      size_gb: 5,
    });
    const kept = await account.createMachine({ name: 'kept' });
    await account.call('DELETE', `/v1/machines/${kept.id}?preserve_storage=true`);
    await withPage({ account }, async (page) => {
      await page.goto('/volumes');
      await attach(page, 'busy', '/mnt/busy');
      await rowOf(page, 'busy').getByText('attached').waitFor();
    });
    await keepScreenshots('volumes', {
      account,
      path: '/volumes',
      ready: (page) => rowOf(page, 'busy').getByRole('link', { name: 'worker' }).waitFor(),
      check: assertAccessible,
    });
  });

  it('says beside the disabled button why no volume can be made, to the pointer and the keyboard', async () => {
    const small = await createAccount({ tier: 'free' });
    for (const name of ['first', 'second']) await small.call('POST', '/v1/volumes', { name, size_gb: 5 });
    const reason = 'The quota "volumes" is full: delete a volume first.';
    await withPage({ account: small, size: NARROW }, async (page) => {
      await page.goto('/volumes');
      const button = page.getByRole('button', { name: 'New volume', description: reason });
      const tooltip = page.getByRole('tooltip', { name: reason });
      await button.waitFor();
      await assertFits(page);
      await button.hover();
      await tooltip.waitFor();
      await assertFits(page, tooltip);
      await page.mouse.move(0, 400);
      await tooltip.waitFor({ state: 'hidden' });
      await page.getByLabel('Kind').focus();
      await page.keyboard.press('Shift+Tab');
      await tooltip.waitFor();
      await page.keyboard.press('Enter');
      assert.equal(new URL(page.url()).search, '', 'the form stays closed');
    });
  });
});

async function attach(page: Page, volume: string, path: string): Promise<void> {
  await choose(page, volume, 'Attach…');
  const form = page.getByRole('dialog', { name: 'Attach' });
  const option = form.getByRole('option', { name: /^.?worker.? \(running\)$/ });
  await option.waitFor({ state: 'attached' });
  await form.getByLabel('Machine').selectOption({ value: (await option.getAttribute('value')) ?? '' });
  await form.getByLabel('Mount path').fill(path);
  await form.getByRole('button', { name: 'Attach' }).click();
}
