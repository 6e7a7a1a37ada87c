// Tests the terminal of a machine's page in a browser: its size, keys and pastes, and how to use it by keyboard.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import type { Exec } from '@sandbar/contract/exec.ts';
import { createAccount, destroyMachines, type TestAccount } from '../e2e/support/accounts.ts';
import { until } from '../e2e/support/service.ts';
import { assertAccessible } from './support/accessibility.ts';
import { NARROW, withPage } from './support/browser.ts';
import { assertFits } from './support/layout.ts';
import { keepScreenshots } from './support/screenshots.ts';
import { TerminalView, terminalPath } from './support/terminal-view.ts';

describe('the terminal of a machine', () => {
  let account: TestAccount;
  let machineId: string;
  before(async () => {
    account = await createAccount();
    machineId = (await account.createMachine({ name: 'worker' })).id;
  });
  after(() => destroyMachines(account));

  const withTerminal = (work: (view: TerminalView) => Promise<void>) =>
    withPage({ account }, async (page) => work(await TerminalView.open(page, machineId)));

  /** The exit code of a command that runs in the machine, beside the terminal. */
  async function codeOf(command: string): Promise<number | null> {
    const { id } = await account.call<Exec>('POST', `/v1/machines/${machineId}/execs`, { command });
    const exec = await account.call<Exec>('GET', `/v1/machines/${machineId}/execs/${id}?wait_ms=10000`);
    return exec.exit_code;
  }

  it('has a size that follows the window', async () => {
    await withTerminal(async (view) => {
      const { page } = view;
      const wide = await view.sttySize('wide');
      assert.equal(wide.rows, (await view.rows()).length);
      // A line of twice the width fills its first row to the last column that the page shows.
      await view.run(`clear; printf 'x%.0s' $(seq ${2 * wide.cols}); echo`);
      await view.shows(/^x+\nx+\n/);
      assert.equal((await view.rows())[0], 'x'.repeat(wide.cols));
      await page.setViewportSize({ width: 700, height: 600 });
      await until('fewer columns', async () => (await view.rows())[0]?.length !== wide.cols);
      const small = await view.sttySize('small');
      assert.ok(small.cols < wide.cols && small.rows < wide.rows, JSON.stringify([wide, small]));
      assert.equal(small.rows, (await view.rows()).length);
    });
  });

  it('has the size of the window too when that changed while another tab was shown', async () => {
    await withTerminal(async (view) => {
      const { page } = view;
      const first = await view.sttySize('first');
      await view.openAnother();
      await page.setViewportSize({ width: 900, height: 700 });
      const second = await view.sttySize('second');
      assert.ok(second.cols < first.cols, JSON.stringify([first, second]));
      // After a reload, the first terminal is joined while it is hidden.
      await page.reload();
      await view.shows(/second=/);
      await page.setViewportSize({ width: 1100, height: 650 });
      await page.getByRole('tab', { name: 'Terminal 1' }).click();
      await view.shows(/first=/);
      const shown = await view.sttySize('shown');
      assert.ok(second.cols < shown.cols && shown.cols < first.cols, JSON.stringify([first, second, shown]));
      assert.equal(shown.rows, (await view.rows()).length);
    });
  });

  it('takes what is typed as soon as it is opened or chosen', async () => {
    await withPage({ account }, async (page) => {
      const view = new TerminalView(page);
      await page.goto(`/machines/${machineId}`);
      await page.getByRole('link', { name: 'Terminal' }).click();
      await view.isReady();
      await page.keyboard.type('echo "first""-typed"\n');
      await view.shows(/^first-typed$/m);
      await view.openAnother();
      await page.keyboard.type('echo "second""-typed"\n');
      await view.shows(/^second-typed$/m);
      await page.getByRole('tab', { name: 'Terminal 1' }).click();
      await page.keyboard.type('echo "third""-typed"\n');
      await view.shows(/^third-typed$/m);
    });
  });

  it('opens several terminals as tabs, each with a shell of its own, and ends one', async () => {
    await withTerminal(async (view) => {
      const { page } = view;
      await view.run('WHO=one; echo "I-am-$WHO"');
      await view.shows(/^I-am-one$/m);
      await view.openAnother();
      await view.run('echo "I-am-two$WHO"');
      await view.shows(/^I-am-two$/m);
      await page.getByRole('tab', { name: 'Terminal 1' }).click();
      await view.shows(/^I-am-one$/m);
      page.once('dialog', (dialog) => void dialog.accept());
      await page.getByRole('button', { name: 'End terminal 1' }).click();
      await view.shows(/^I-am-two$/m);
      assert.equal(await page.getByRole('tab').count(), 1);
    });
  });

  for (const [what, between] of [
    ['', '\n'],
    [', even when the text ends the brackets itself', '\x1b[201~\n'],
  ] as const) {
    it(`pastes several lines without running the first${what}`, async () => {
      await withTerminal(async (view) => {
        const [first, second] = [`/tmp/${randomUUID()}`, `/tmp/${randomUUID()}`];
        await view.paste(`touch ${first}${between}touch ${second}\n`);
        await view.shows(new RegExp(second));
        assert.equal(await codeOf(`test -e ${first}`), 1, 'nothing ran');
        await view.page.keyboard.press('Enter');
        await until('the lines run', async () => (await codeOf(`test -e ${second}`)) === 0);
      });
    });
  }

  it('interrupts with Ctrl+C, but copies when text is selected', async () => {
    await withTerminal(async (view) => {
      const { page } = view;
      await view.run('clear; echo "copied""Word"; sleep 1000; echo "ended-$?"');
      await view.shows(/^copiedWord$/m);
      const word = await page.locator('.xterm-rows:visible > div', { hasText: /^copiedWord/ }).boundingBox();
      assert.ok(word);
      await page.mouse.dblclick(word.x + 20, word.y + word.height / 2);
      await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
      await page.keyboard.press('Control+C');
      await until('the word is copied', async () => {
        return (await page.evaluate(() => navigator.clipboard.readText())) === 'copiedWord';
      });
      assert.doesNotMatch(await view.text(), /\^C/);
      assert.equal(await codeOf('pgrep -x sleep || grep -l "^sleep" /proc/[0-9]*/comm'), 0, 'the command still runs');
      await page.keyboard.press('Control+C');
      await view.shows(/\^C/);
      await view.run('echo "after-$?"');
      await view.shows(/^after-130$/m);
    });
  });

  it('is left by keyboard with the keys that the page names', async () => {
    await withPage({ account, size: NARROW }, async (page) => {
      const view = await TerminalView.open(page, machineId);
      await page.getByText('Alt+Shift+↑ leaves the terminal').waitFor();
      await view.focus();
      await page.keyboard.press('Tab');
      assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('aria-label')), 'Terminal input');
      await page.keyboard.press('Alt+Shift+ArrowUp');
      const tab = page.getByRole('tab', { name: 'Terminal 1' });
      await until('the tab has the focus', () => tab.evaluate((element) => element === document.activeElement));
      await page.keyboard.press('Tab');
      const button = page.getByRole('button', { name: 'New terminal' });
      await until('the button has the focus', () => button.evaluate((element) => element === document.activeElement));
    });
  });

  it('passes axe in both themes and widths', async () => {
    await keepScreenshots('terminal', {
      account,
      path: terminalPath(machineId),
      ready: async (page) => {
        const view = new TerminalView(page);
        await view.isReady();
        await view.run('ls --color /');
        await view.shows(/\bvar\n[^\n]*[#$]$/);
      },
      check: async (page) => {
        await assertFits(page);
        await assertAccessible(page);
      },
    });
  });
});
