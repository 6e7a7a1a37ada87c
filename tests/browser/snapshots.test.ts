// Tests the page of snapshots, with a running machine, and the page of images.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import { createAccount, destroyMachines, type TestAccount } from '../e2e/support/accounts.ts';
import { assertAccessible } from './support/accessibility.ts';
import { withPage } from './support/browser.ts';
import { run } from './support/in-machine.ts';
import { choose, rowOf } from './support/lists.ts';
import { keepScreenshots } from './support/screenshots.ts';

const FILE = '/root/note';

describe('the page of snapshots', () => {
  let account: TestAccount;
  let machine: Machine;
  before(async () => {
    account = await createAccount();
    machine = await account.createMachine({ name: 'origin' });
  });
  after(() => destroyMachines(account));

  it('explains an empty list with commands to run, and passes axe', async () => {
    await keepScreenshots('snapshots-empty', {
      account,
      path: '/snapshots',
      ready: (page) => page.getByText('There are no snapshots yet.').waitFor(),
      check: assertAccessible,
    });
  });

  it('makes a machine from a snapshot, restores it, and deletes it', async () => {
    await run(account, machine.id, `echo before > ${FILE} && sync`);
    let copyId = '';
    await withPage({ account }, async (page) => {
      await page.goto(`/machines/${machine.id}?tab=snapshots`);
      await page.getByLabel('Name').fill('before');
      await page.getByRole('button', { name: 'Take a snapshot' }).click();
      await page.getByRole('listitem').filter({ hasText: 'before' }).waitFor();
      await run(account, machine.id, `echo after > ${FILE} && sync`);

      await page.getByRole('region', { name: 'Compute' }).getByRole('link', { name: 'Snapshots' }).click();
      await rowOf(page, 'before').getByText('ready').waitFor();
      await rowOf(page, 'before').getByRole('link', { name: 'origin' }).waitFor();
      await choose(page, 'before', 'New machine from it…');
      const form = page.getByRole('form', { name: 'New machine' });
      await form.getByLabel('Name').fill('copy');
      await form.getByRole('button', { name: 'Create the machine' }).click();
      await page.waitForURL(/\/machines\/[0-9a-f-]{36}$/);
      copyId = page.url().split('/').at(-1) ?? '';
      assert.notEqual(copyId, machine.id);
    });
    assert.equal(await run(account, copyId, `cat ${FILE}`), 'before\n');
    assert.equal(await run(account, machine.id, `cat ${FILE}`), 'after\n');
    await withPage({ account }, async (page) => {
      await page.goto('/snapshots');
      await choose(page, 'before', 'Restore…');
      const question = page.getByRole('alertdialog');
      await question.getByText('What was written since is lost.').waitFor();
      const answer = page.waitForResponse(/\/restore$/);
      await question.getByRole('button', { name: 'Restore' }).click();
      assert.equal((await answer).status(), 200);
      assert.equal(await run(account, machine.id, `cat ${FILE}`), 'before\n');

      await choose(page, 'before', 'Delete…');
      await question.getByRole('button', { name: 'Delete snapshot' }).click();
      await page.getByText('There are no snapshots yet.').waitFor();
    });
  });

  it('keeps the reason of a refusal until it is dismissed', async () => {
    const snapshot = await account.call<{ id: string }>('POST', `/v1/machines/${machine.id}/snapshots`, {
      name: 'gone',
    });
    await withPage({ account }, async (page) => {
      await page.goto('/snapshots');
      await choose(page, 'gone', 'Restore…');
      // Somebody else deletes it while the question is open.
      await account.call('DELETE', `/v1/snapshots/${snapshot.id}`);
      await page.getByRole('alertdialog').getByRole('button', { name: 'Restore' }).click();
      const failure = page.getByRole('alert').filter({ hasText: 'gone' });
      await failure.getByRole('button', { name: 'Dismiss' }).click();
      await failure.waitFor({ state: 'detached' });
    });
  });

  it('shows snapshots of disks and of memory, and passes axe', async () => {
    const long = { name: 'a snapshot with <b>a long name</b> that needs more room' };
    await account.call('POST', `/v1/machines/${machine.id}/snapshots`, long);
    await account.call('POST', `/v1/machines/${machine.id}/snapshots`, { name: 'with memory', memory: true });
    await keepScreenshots('snapshots', {
      account,
      path: '/snapshots',
      ready: (page) => rowOf(page, 'with memory').getByRole('link', { name: 'origin' }).waitFor(),
      check: assertAccessible,
    });
    const { snapshots } = await account.call<{ snapshots: { id: string }[] }>('GET', '/v1/snapshots');
    for (const { id } of snapshots) await account.call('DELETE', `/v1/snapshots/${id}`);
  });

  it('has a page of the images that machines are made from, and passes axe', async () => {
    await keepScreenshots('images', {
      account,
      path: '/images',
      ready: (page) => page.getByRole('row').filter({ hasText: 'base (default)' }).waitFor(),
      check: assertAccessible,
    });
  });
});
