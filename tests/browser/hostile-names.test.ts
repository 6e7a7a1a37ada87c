// Tests in a browser that names with markup, control characters or marks of direction are shown as text on every page,
// and change nothing around them.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Exec } from '@sandbar/contract/exec.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Locator, Page } from 'playwright-core';
import { createAccount, destroyMachines, type TestAccount } from '../e2e/support/accounts.ts';
import { BASE_URL } from '../e2e/support/service.ts';
import { assertAccessible } from './support/accessibility.ts';
import { withPage } from './support/browser.ts';
import { keepScreenshots } from './support/screenshots.ts';
import { findDisorder } from './support/text-order.ts';

const MARKER = 'onerror';
const MARKUP = `<img src=x ${MARKER}="globalThis.isInjected=true">`;
/**
 * Names for all kinds of things. The second has control characters (BEL and ESC), and the override that reverses letters
 * after an end of isolation, which would leave a `<bdi>`. The third is a word from right to left with a number.
 */
const HOSTILE = [
  MARKUP,
  `${MARKUP}\u0007\u001b[31m\u2069\u2069\u202Egnp.exe`,
  `${MARKUP}\u05e9\u05dc\u05d5\u05dd 5`,
  `${MARKUP}\u2029\u202Egnp.exe`,
];

/** Makes a file of each name, and prints the names without ESC, which would change their colour. */
const MAKE_FILES = `for name; do printf '%s\\n' "$name" | tee "/root/$name"; done | tr -d '\\033'`;

describe('a hostile name', () => {
  let account: TestAccount;
  let machine: Machine;
  let job: Exec;
  before(async () => {
    account = await createAccount();
    const { call } = account;
    machine = await account.createMachine({
      name: HOSTILE[1] ?? '',
      metadata: Object.fromEntries(HOSTILE.map((name) => [name, name])),
    });
    const path = `/v1/machines/${machine.id}`;
    for (const name of HOSTILE) {
      await call('POST', '/v1/volumes', { name, size_gb: 5 });
      job = await call<Exec>('POST', `${path}/execs?wait_ms=10000`, {
        argv: ['sh', '-c', MAKE_FILES, 'sh', ...HOSTILE],
        name,
      });
    }
    await call('POST', `${path}/snapshots`, { name: HOSTILE[1] });
    await withPage({ account }, async (_page, { request }) => {
      const headers = { origin: new URL(BASE_URL).origin };
      for (const name of HOSTILE) {
        const answer = await request.post('/v1/api-keys', { data: { name, scope: 'read' }, headers });
        assert.ok(answer.ok(), await answer.text());
      }
    });
    const { volumes } = await call<{ volumes: { id: string; name: string }[] }>('GET', '/v1/volumes');
    const volume = volumes.find(({ name }) => name === HOSTILE[1]);
    await call('POST', `/v1/volumes/${volume?.id}/attach`, { machine_id: machine.id });
  });
  after(() => destroyMachines(account));

  /** Opens the page and fails when a name has any effect except that it is shown. `names`: how many must be shown. */
  const look = (path: string, names: number, work?: (page: Page) => Promise<void>) =>
    withPage({ account }, async (page) => {
      page.on('dialog', (dialog) => assert.fail(`a dialog says ${dialog.message()}`));
      await page.goto(path);
      await shown(page)
        .nth(names - 1)
        .waitFor();
      await assertHarmless(page);
      await work?.(page);
    });

  it('is text in the list of machines and in the search for one', async () => {
    await look('/machines', 1, async (page) => {
      await page.keyboard.press('Control+k');
      const dialog = page.getByRole('dialog');
      await dialog.getByRole('combobox').fill(MARKER);
      await shown(dialog).waitFor();
      await assertHarmless(page);
    });
    await keepScreenshots('hostile-names', {
      account,
      path: '/machines',
      ready: (page) => shown(page).waitFor(),
      check: assertAccessible,
    });
  });

  it('is text on the page of its machine, as a name and as metadata', async () => {
    // The name is in the heading and in the overview, and each entry of the metadata has it as its key and its value.
    await look(`/machines/${machine.id}`, 2 + 2 * HOSTILE.length, async (page) => {
      await page.getByRole('button', { name: /^Destroy/ }).click();
      await shown(dialogOf(page)).waitFor();
      await assertHarmless(page);
    });
  });

  it('is text as the name of a job, and in its output', async () => {
    await look(`/machines/${machine.id}?tab=jobs`, 1 + HOSTILE.length);
    await look(`/machines/${machine.id}?tab=jobs&job=${job.id}`, 2 + HOSTILE.length);
  });

  it('is text as the name of a volume', async () => {
    await look('/volumes', HOSTILE.length, (page) => eachMenu(page, HOSTILE.length, ['Attach…', 'Delete…']));
    await look(`/machines/${machine.id}?tab=volumes`, 2);
  });

  it('is text as the name of a snapshot', async () => {
    await look('/snapshots', 2, (page) => eachMenu(page, 1, ['Restore…', 'Delete…']));
    await look(`/machines/${machine.id}?tab=snapshots`, 2);
  });

  it('is text as the name of an API key', async () => {
    await look('/api-keys', HOSTILE.length, (page) => eachMenu(page, HOSTILE.length, ['Revoke…']));
  });

  it('is text as the name of a file and in the activity', async () => {
    await look(`/machines/${machine.id}?tab=files&path=/root`, 1 + HOSTILE.length);
    await look(`/machines/${machine.id}?tab=activity`, 1);
    await look('/activity', 1);
  });
});

/** What shows a hostile name as text. Options of a select are not counted, because a closed select does not show them. */
const shown = (where: Page | Locator): Locator =>
  where.getByText(MARKER).and(where.locator(':not(option)')).filter({ visible: true });

const dialogOf = (page: Page): Locator => page.getByRole('alertdialog').or(page.getByRole('dialog'));

/** Opens the menu of every row with a hostile name and each of the dialogs in it. */
async function eachMenu(page: Page, rows: number, items: readonly string[]): Promise<void> {
  for (let row = 0; row < rows; row++) {
    for (const name of items) {
      const shownRow = page.getByRole('row').filter({ hasText: MARKER }).nth(row);
      await shownRow.getByRole('button', { name: 'Actions of' }).click();
      const item = page.getByRole('menuitem', { name });
      if ((await item.getAttribute('aria-disabled')) === 'true') {
        await page.keyboard.press('Escape');
        continue;
      }
      await item.click();
      const dialog = dialogOf(page);
      await shown(dialog).first().waitFor();
      await assertHarmless(page);
      await page.keyboard.press('Escape');
      await dialog.waitFor({ state: 'detached' });
    }
  }
}

async function assertHarmless(page: Page): Promise<void> {
  assert.equal(await page.locator('img').count(), 0, 'images');
  assert.equal(await page.evaluate(() => 'isInjected' in globalThis), false, 'a script of a name ran');
  assert.deepEqual(await findDisorder(page, MARKER), [], page.url());
}
