// Tests the form for a new machine in a browser: what it makes, what bounds it, and that its samples are its request.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import type { Exec, ExecOutput } from '@sandbar/contract/exec.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Snapshot } from '@sandbar/contract/snapshot.ts';
import type { Locator, Page } from 'playwright-core';
import { createAccount, destroyMachines, operator, type TestAccount } from '../e2e/support/accounts.ts';
import { BASE_URL } from '../e2e/support/service.ts';
import { assertAccessible } from './support/accessibility.ts';
import { withPage } from './support/browser.ts';
import { keepScreenshots } from './support/screenshots.ts';

const CHECKOUT = join(import.meta.dirname, '../..');
const run = promisify(execFile);

const submit = (page: Page): Locator => page.getByRole('button', { name: 'Create the machine' });

async function openForm(page: Page): Promise<void> {
  await page.goto('/machines?new=true');
  await page.getByLabel('Memory (MiB)').fill('256');
  await page.getByLabel('Disk (GiB)').fill('2');
}

/** Submits the form, waits for the page of the new machine, and returns the machine. */
async function submitted(page: Page, account: TestAccount): Promise<Machine> {
  await submit(page).click();
  await page.waitForURL(/\/machines\/[0-9a-f-]{36}$/);
  return account.call('GET', `/v1/machines/${new URL(page.url()).pathname.split('/').at(-1)}`);
}

/** How a person runs each sample. The CLI's command is not installed in the path of the tests. */
const PROGRAMS: Record<string, (code: string) => [string, string[]]> = {
  curl: (code) => ['bash', ['-c', code]],
  CLI: (code) => ['bash', ['-c', `sandbar() { "$NODE" packages/cli/bin/sandbar.mjs "$@"; }\n${code}`]],
  TypeScript: (code) => [process.execPath, ['--input-type=module-typescript', '-e', code]],
  Python: (code) => ['python3', ['-c', code]],
};

describe('the form for a new machine', () => {
  let account: TestAccount;
  before(async () => {
    account = await createAccount();
  });
  after(() => destroyMachines(account));

  it('makes what it says, and each sample beside it makes the same', async () => {
    await withPage({ account }, async (page) => {
      await openForm(page);
      await page.getByLabel('Name', { exact: true }).fill(`it's "new" $HOME`);
      await page.getByLabel('Expires after').fill('2');
      await page.getByLabel('Then').selectOption('stop it');
      await page.getByRole('button', { name: 'Add to metadata' }).click();
      await page.getByLabel('Metadata: key 1').fill('team');
      await page.getByLabel('Metadata: value 1').fill('a & b');
      await page.getByRole('button', { name: 'Add to environment' }).click();
      await page.getByLabel('Environment: key 1').fill('GREETING');
      await page.getByLabel('Environment: value 1').fill(`it's "$HOME" \\ a`);
      for (const [label, programOf] of Object.entries(PROGRAMS)) {
        await page.getByRole('tab', { name: label }).click();
        const code = (await page.getByRole('tabpanel', { name: label }).getByRole('code').textContent()) ?? '';
        assert.ok(!code.includes(account.api_key), 'the sample has no key');
        const [program, parameters] = programOf(code);
        const { SANDBAR_HOME: _home, ...inherited } = process.env;
        const keys = { SANDBAR_API_KEY: account.api_key, SANDBAR_BASE_URL: BASE_URL, NODE: process.execPath };
        await run(program, parameters, { cwd: CHECKOUT, env: { ...inherited, ...keys } });
        await checkMachine(account, await onlyMachine(account), label);
        await destroyMachines(account);
      }
      await checkMachine(account, await submitted(page, account), 'the form');
      await destroyMachines(account);
    });
  });

  it('makes a machine from a snapshot and from a kept disk', async () => {
    const { id } = await account.createMachine();
    const snapshot = await account.call<Snapshot>('POST', `/v1/machines/${id}/snapshots`, { name: 'base' });
    const other = await account.createMachine({ name: 'giver' });
    await account.call('DELETE', `/v1/machines/${other.id}?preserve_storage=true`);
    await withPage({ account }, async (page) => {
      await openForm(page);
      await page.getByLabel('A snapshot').check();
      await submit(page).click();
      await page.getByText('Choose a snapshot.').waitFor();
      await page.getByLabel('Snapshot', { exact: true }).selectOption(snapshot.id);
      const copy = await submitted(page, account);
      assert.deepEqual([copy.snapshot_id, copy.state], [snapshot.id, 'running']);
      await openForm(page);
      await page.getByLabel('A kept disk').check();
      await page.getByLabel('Kept disk', { exact: true }).selectOption({ index: 1 });
      const heir = await submitted(page, account);
      assert.ok(heir.root_volume_id);
      assert.equal(heir.rootfs_size_gb, 2);
      await account.call('DELETE', `/v1/machines/${copy.id}`);
      await account.call('DELETE', `/v1/machines/${heir.id}`);
      await account.call('DELETE', `/v1/machines/${id}?delete_snapshots=true`);
    });
  });

  it('is bounded by the quotas and by the largest machine of the account', async () => {
    const small = await createAccount();
    await setLimits(small, { vcpus: 3, memory_mb_per_machine: 512, machines: 1 });
    await withPage({ account: small }, async (page) => {
      await openForm(page);
      let asked = 0;
      page.on('request', (request) => {
        if (request.method() === 'POST') asked += 1;
      });
      await page.getByLabel('vCPUs').fill('4');
      await page.getByLabel('Memory (MiB)').fill('513');
      await submit(page).click();
      await page
        .getByRole('alert')
        .filter({ hasText: /^A whole number from 1 to \d\.$/ })
        .waitFor();
      await page.getByRole('alert').filter({ hasText: 'A whole number from 128 to 512.' }).waitFor();
      assert.equal(asked, 0);
      await small.createMachine();
      await page.reload();
      await page.getByRole('link', { name: 'See the quota of machines' }).waitFor();
      assert.equal(await submit(page).getAttribute('aria-disabled'), 'true');
    });
    await destroyMachines(small);
  });

  it('names the quota that the service refuses by, and leads to it', async () => {
    const small = await createAccount();
    await setLimits(small, { storage_gb: 4 });
    await withPage({ account: small }, async (page) => {
      await openForm(page);
      await page.getByLabel('Disk (GiB)').fill('3');
      // Another client takes the storage after the form was opened.
      await small.createMachine();
      await submit(page).click();
      const refusal = page
        .getByRole('alert')
        .filter({ hasText: 'The quota storage_gb of the account would be exceeded' });
      await refusal.waitFor();
      assert.equal(await page.getByLabel('Disk (GiB)').getAttribute('aria-invalid'), 'true');
      await refusal.getByRole('link', { name: 'See the quota of storage' }).click();
      await page.waitForURL(/\/quotas#storage_gb$/);
      const quota = page.locator('#storage_gb');
      await quota.getByText('2 of 4').waitFor();
      assert.ok(await quota.evaluate((element) => element === document.activeElement), 'the quota has the focus');
    });
    await destroyMachines(small);
  });

  it('passes axe in both themes and widths', async () => {
    await keepScreenshots('machines-create', {
      account,
      path: '/machines?new=true',
      ready: async (page) => {
        await page.getByLabel('Name', { exact: true }).fill('worker');
        await page.getByRole('button', { name: 'Add to metadata' }).click();
        await page.getByLabel('Metadata: key 1').fill('team');
        await page.getByLabel('Metadata: value 1').fill('web');
      },
      check: assertAccessible,
    });
  });
});

const setLimits = ({ account_id }: TestAccount, limits: Record<string, number>) =>
  operator('POST', `/admin/accounts/${account_id}/limits`, limits);

async function onlyMachine({ call }: TestAccount): Promise<Machine> {
  const { machines } = await call<{ machines: Machine[] }>('GET', '/v1/machines');
  assert.equal(machines.length, 1);
  return machines[0] as Machine;
}

/** Checks what the first test wrote into the form. */
async function checkMachine({ call }: TestAccount, machine: Machine, maker: string): Promise<void> {
  const { id, name, vcpus, memory_mb, rootfs_size_gb, metadata, on_expiry, created_at, expires_at } = machine;
  assert.deepEqual(
    { name, vcpus, memory_mb, rootfs_size_gb, metadata, on_expiry },
    {
      ...{ name: `it's "new" $HOME`, vcpus: 1, memory_mb: 256, rootfs_size_gb: 2 },
      ...{ metadata: { team: 'a & b' }, on_expiry: 'stop' },
    },
    maker,
  );
  const seconds = (Date.parse(expires_at ?? '') - Date.parse(created_at)) / 1000;
  assert.ok(Math.abs(seconds - 7_200) < 60, `${maker}: expires after ${seconds} s`);
  const job = await call<Exec>('POST', `/v1/machines/${id}/execs`, { command: 'printf %s "$GREETING"' });
  await call('GET', `/v1/machines/${id}/execs/${job.id}?wait_ms=20000`);
  const output = await call<ExecOutput>('GET', `/v1/machines/${id}/execs/${job.id}/output?stream=stdout`);
  assert.equal(Buffer.from(output.data, 'base64').toString(), `it's "$HOME" \\ a`, maker);
}
