// Tests the page of one machine in a browser: overview, volumes, snapshots and activity.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Volume } from '@sandbar/contract/volume.ts';
import { createAccount, destroyMachines, type TestAccount } from '../e2e/support/accounts.ts';
import { assertAccessible } from './support/accessibility.ts';
import { withPage } from './support/browser.ts';
import { whilePaused } from './support/paused.ts';
import { keepScreenshots } from './support/screenshots.ts';

describe('the page of a machine', () => {
  let account: TestAccount;
  let machine: Machine;
  before(async () => {
    account = await createAccount();
    machine = await account.createMachine({ name: 'worker', metadata: { team: 'web' } });
  });
  after(() => destroyMachines(account));

  it('takes a snapshot, restores it and deletes it', async () => {
    await withPage({ account }, async (page) => {
      await page.goto(`/machines/${machine.id}?tab=snapshots`);
      await page.getByText('The machine has no snapshots.').waitFor();
      await page.getByLabel('Name').fill('first');
      await page.getByRole('button', { name: 'Take a snapshot' }).click();
      const snapshot = page.getByRole('list', { name: 'Snapshots' }).getByRole('listitem').filter({ hasText: 'first' });
      await snapshot.getByRole('button', { name: 'Restore' }).click();
      await page.getByRole('button', { name: 'Restore the disk' }).click();
      await page.getByRole('alertdialog').waitFor({ state: 'detached' });
      await snapshot.getByRole('button', { name: 'Delete' }).click();
      await page.getByRole('button', { name: 'Delete the snapshot' }).click();
      await page.getByText('The machine has no snapshots.').waitFor();
    });
  });

  it('attaches a volume and detaches it', async () => {
    const volume = await account.call<Volume>('POST', '/v1/volumes', { name: 'data', size_gb: 5 });
    await withPage({ account }, async (page) => {
      await page.goto(`/machines/${machine.id}?tab=volumes`);
      await page.getByText('The machine has no volumes.').waitFor();
      await page.getByLabel('Volume', { exact: true }).selectOption(volume.id);
      await page.getByLabel('Mount at').fill('/data');
      await page.getByRole('button', { name: 'Attach' }).click();
      const attached = page.getByRole('list', { name: 'Attached volumes' }).getByRole('listitem');
      await attached.filter({ hasText: '5 GiB at /data' }).waitFor();
      await page.getByRole('button', { name: 'Detach data' }).click();
      await page.getByText('The machine has no volumes.').waitFor();
    });
  });

  it('keeps the open tab over a reload', async () => {
    await withPage({ account }, async (page) => {
      await page.goto(`/machines/${machine.id}`);
      const tabs = page.getByRole('navigation', { name: 'Parts of the machine' });
      await tabs.getByRole('link', { name: 'Activity' }).click();
      await page.waitForURL(/tab=activity$/);
      await page.reload();
      await page.getByRole('list', { name: 'Activity, newest first' }).getByText('Machine created').waitFor();
      assert.equal(await tabs.locator('[aria-current=page]').textContent(), 'Activity');
    });
  });

  it('says what is under way, and why a stopped machine cannot be stopped', async () => {
    await withPage({ account }, async (page) => {
      await page.goto(`/machines/${machine.id}`);
      const stop = page.getByRole('button', { name: 'Stop' });
      await whilePaused(machine.id, async () => {
        await stop.click();
        await page
          .getByRole('definition')
          .getByText(/^stopping, asked for/)
          .waitFor();
        await page.getByRole('button', { name: 'Start' }).and(page.locator('[aria-disabled=true]')).waitFor();
        await page.getByText('Wait: the machine is stopping.').first().waitFor({ state: 'attached' });
      });
      await page.getByText('stopped', { exact: true }).first().waitFor();
      await stop.and(page.locator('[aria-disabled=true]')).waitFor();
      let asked = 0;
      page.on('request', (request) => {
        if (request.method() === 'POST') asked += 1;
      });
      await page.mouse.move(0, 0);
      await stop.hover();
      await page.getByRole('tooltip', { name: 'The machine is stopped already.' }).waitFor();
      await stop.click({ force: true });
      await page.waitForResponse(new RegExp(`/v1/machines/${machine.id}$`));
      assert.equal(asked, 0);
      await page.getByRole('button', { name: 'Start' }).click();
      await page.getByText('running', { exact: true }).first().waitFor();
    });
  });

  it('changes the name, the expiry and the metadata', async () => {
    await withPage({ account }, async (page) => {
      await page.goto(`/machines/${machine.id}`);
      await page.getByRole('button', { name: 'Change: Name' }).click();
      await page.getByLabel('New name').fill('builder');
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByRole('heading', { name: 'builder', level: 1 }).waitFor();
      await page.getByRole('button', { name: 'Change: Expiry' }).click();
      await page.getByLabel('Expires after').fill('3');
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByText(/destroy in 2 hours/).waitFor();
      await page.getByRole('button', { name: 'Change: Expiry' }).click();
      await page.getByLabel('Then').selectOption('stop it');
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByText(/stop in 2 hours/).waitFor();
      await page.getByRole('button', { name: 'Change: Expiry' }).click();
      await page.getByLabel('Expires after').fill('1e');
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByRole('alert').filter({ hasText: 'in whole seconds' }).waitFor();
      await page.getByLabel('Remove the expiry').check();
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByRole('button', { name: 'Change: Expiry' }).waitFor();
      await page.getByRole('button', { name: 'Change: Metadata' }).click();
      await page.getByLabel('Metadata: value 1').fill('data');
      // Another client adds a key while the form is open.
      await account.call('PATCH', `/v1/machines/${machine.id}`, { metadata: { team: 'web', tier: 2 } });
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByRole('definition').getByText('data', { exact: true }).waitFor();
      const changed = await account.call<Machine>('GET', `/v1/machines/${machine.id}`);
      assert.deepEqual([changed.name, changed.metadata], ['builder', { team: 'data', tier: 2 }]);
      assert.deepEqual([changed.expires_at, changed.on_expiry], [null, 'stop']);
    });
  });

  it('asks before it destroys a machine, each time anew, and only about the machine of the page', async () => {
    const other = await account.createMachine({ name: 'other' });
    await withPage({ account }, async (page) => {
      await page.goto(`/machines/${machine.id}`);
      const heading = page.getByRole('heading', { level: 1 });
      await heading.filter({ hasText: 'builder' }).waitFor();
      await page.keyboard.press('Control+k');
      await page.getByRole('combobox', { name: 'Page or machine' }).fill('other');
      await page.getByRole('option').filter({ hasText: 'other' }).click();
      await heading.filter({ hasText: 'other' }).waitFor();
      await page.getByRole('button', { name: 'Destroy' }).click();
      const question = page.getByRole('alertdialog', { name: /Destroy other ?\?/ });
      await question.getByLabel('Keep its disk as a volume').check();
      await question.getByRole('button', { name: 'Cancel' }).click();
      await question.waitFor({ state: 'detached' });
      await page.getByRole('button', { name: 'Destroy' }).click();
      assert.equal(await question.getByLabel('Keep its disk as a volume').isChecked(), false);
      await page.goBack();
      await heading.filter({ hasText: 'builder' }).waitFor();
      await page.getByRole('alertdialog').waitFor({ state: 'detached' });
    });
    await account.call('DELETE', `/v1/machines/${other.id}`);
  });

  it('passes axe in both themes and widths', async () => {
    await account.call('POST', `/v1/machines/${machine.id}/snapshots`, { name: 'before the update' });
    const volume = await account.call<Volume>('POST', '/v1/volumes', { name: 'cache', size_gb: 5 });
    await account.call('POST', `/v1/volumes/${volume.id}/attach`, { machine_id: machine.id, mount_path: '/cache' });
    const ready = {
      overview: 'Cost this month',
      snapshots: 'before the update',
      volumes: '/cache',
      activity: 'Machine created',
    };
    for (const [tab, text] of Object.entries(ready)) {
      await keepScreenshots(`machine-${tab}`, {
        account,
        path: `/machines/${machine.id}${tab === 'overview' ? '' : `?tab=${tab}`}`,
        ready: (page) => page.getByText(text).first().waitFor(),
        check: assertAccessible,
      });
    }
    await account.call('DELETE', `/v1/machines/${machine.id}?delete_snapshots=true`);
  });
});
