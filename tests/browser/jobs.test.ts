// Tests the tab "Jobs" of a machine in a browser: running commands, their live output, its end, and the download.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { after, before, describe, it } from 'node:test';
import type { Exec, ExecCreate } from '@sandbar/contract/exec.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Page, Route } from 'playwright-core';
import { createAccount, destroyMachines, type TestAccount } from '../e2e/support/accounts.ts';
import { until } from '../e2e/support/service.ts';
import { assertAccessible } from './support/accessibility.ts';
import { withPage } from './support/browser.ts';
import { keepScreenshots } from './support/screenshots.ts';

/** Reads numbers from stdin and prints all whole numbers up to each of them, one on each line. */
const COUNTER = 'from=1; while read to; do seq $from $to; from=$((to + 1)); done';

describe('the jobs of a machine', () => {
  let account: TestAccount;
  let machine: Machine;
  before(async () => {
    account = await createAccount();
    machine = await account.createMachine();
  });
  after(() => destroyMachines(account));

  const start = (job: ExecCreate) => account.call<Exec>('POST', `/v1/machines/${machine.id}/execs`, job);
  const addressOf = (job?: Exec) => `/machines/${machine.id}?tab=jobs${job ? `&job=${job.id}` : ''}`;
  const openTab = (work: (page: Page) => Promise<void>) =>
    withPage({ account }, async (page) => {
      await page.goto(addressOf());
      await commandBox(page).waitFor();
      await work(page);
    });
  const openJob = (job: Exec, work: (page: Page) => Promise<void>, allowed: readonly string[] = []) =>
    withPage({ account, allowed }, async (page) => {
      await page.goto(addressOf(job));
      await page.getByRole('heading', { name: job.name || job.id }).waitFor();
      await work(page);
    });

  it('are none in a new machine, and the page says how to start the first', async () => {
    await keepScreenshots('jobs-empty', {
      account,
      path: addressOf(),
      ready: (page) => page.getByText(`/v1/machines/${machine.id}/execs`).waitFor(),
      check: assertAccessible,
    });
  });

  it('show their output while they run, read lines from the page, and then show their exit code', async () => {
    await openTab(async (page) => {
      await page.getByText('Options').click();
      await page.getByLabel('Keep stdin open, to write to it later').check();
      await commandBox(page).fill('echo "before the end"; read name; echo "hello $name"; exit 3');
      await page.keyboard.press('Enter');
      await output(page).getByText('before the end').waitFor();
      await status(page, 'running').waitFor();
      await writeLine(page, 'visitor');
      await output(page).getByText('hello visitor').waitFor();
      await page.getByText('The command ended with code 3.').waitFor();
      await status(page, 'exited 3').waitFor();
      await page.getByText('End of stdout.').waitFor();
      assert.equal(await page.getByRole('button', { name: 'Write to stdin' }).count(), 0);
      await page.getByRole('link', { name: 'All jobs' }).click();
      const row = page.getByRole('row').filter({ hasText: 'before the end' });
      await row.getByText('exited 3', { exact: true }).waitFor();
      await commandBox(page).press('ArrowUp');
      assert.match(await commandBox(page).inputValue(), /^echo "before the end"/);
    });
  });

  it('get a line once when the answer to it was lost', async () => {
    const command = 'while read line; do echo "got $line"; done; echo the end';
    const writeTwice = async (page: Page) => {
      await page.getByRole('button', { name: 'Write to stdin' }).click();
      const box = page.getByLabel('A line for stdin');
      await box.fill('one');
      const loseAnswer = (route: Route) => route.fetch().then(() => route.abort());
      await page.route(/\/stdin\?/, loseAnswer, { times: 1 });
      await page.getByRole('button', { name: 'Send line' }).click();
      await page.getByText('The service does not answer.').first().waitFor();
      await output(page).getByText('got one').waitFor();
      assert.equal(await box.inputValue(), 'one');
      await page.getByRole('button', { name: 'Send line' }).click();
      await until('the box is empty', async () => (await box.inputValue()) === '');
      await page.getByRole('button', { name: 'Close stdin' }).click();
      await output(page).getByText('the end').waitFor();
      assert.equal(await output(page).getByText('got one').count(), 1);
    };
    await openJob(await start({ command, name: 'lost answer', stdin_open: true }), writeTwice, ['net::ERR_FAILED']);
  });

  it('run in the chosen directory and end at their timeout', async () => {
    await openTab(async (page) => {
      await page.getByText('Options').click();
      await page.getByLabel('Working directory').fill('/var/log');
      await page.getByLabel('Timeout, seconds').fill('1');
      await commandBox(page).fill('pwd\nsleep 1000');
      await page.getByRole('button', { name: 'Run' }).click();
      await output(page).getByText('/var/log').waitFor();
      await page.getByText('The job reached its timeout').waitFor();
      await status(page, 'timed out').waitFor();
    });
  });

  it('can be cancelled and get signals, but not after their end', async () => {
    await openJob(await start({ command: 'sleep 1000', name: 'cancel me' }), async (page) => {
      await page.getByRole('button', { name: 'Cancel job' }).click();
      await status(page, 'cancelled').waitFor();
      for (const name of ['Cancel job', 'Send signal']) {
        const button = page.getByRole('button', { name });
        assert.equal(await button.getAttribute('aria-disabled'), 'true', name);
        await button.hover();
        await page.getByText('The job has ended already (cancelled).').filter({ visible: true }).waitFor();
      }
    });
    await openJob(await start({ argv: ['sleep', '1000'], name: 'kill me' }), async (page) => {
      await page.getByLabel('Signal').selectOption('KILL');
      await page.getByRole('button', { name: 'Send signal' }).click();
      await status(page, 'killed by SIGKILL').waitFor();
    });
  });

  it('keep the lines on the screen when a person has scrolled up, until "Latest" returns to the end', async () => {
    await openJob(await start({ command: COUNTER, name: 'count', stdin_open: true }), async (page) => {
      const lines = output(page);
      await writeLine(page, '1000');
      await lines.getByText('1000', { exact: true }).waitFor();
      await lines.hover();
      await page.mouse.wheel(0, -3000);
      await page.getByRole('button', { name: 'Latest' }).waitFor();
      const held = await topLine(page);
      assert.ok(held.number < 950, `line ${held.number} is on top`);
      await writeLine(page, '3000');
      // The region becomes three times as high when all lines have arrived.
      await until('3,000 lines', () => lines.evaluate((element) => element.scrollHeight >= 3000 * 20));
      assert.deepEqual(await topLine(page), held);
      assert.equal(await lines.getByText('3000', { exact: true }).count(), 0);
      await page.getByRole('button', { name: 'Latest' }).click();
      await lines.getByText('3000', { exact: true }).waitFor();
      await page.getByRole('button', { name: 'Latest' }).waitFor({ state: 'detached' });
      await writeLine(page, '50000');
      await lines.getByText('50000', { exact: true }).waitFor();
      const rows = await page.locator('[data-index]').count();
      assert.ok(rows > 10 && rows < 500, `${rows} rows`);
      await page.reload();
      await lines.getByText('50000', { exact: true }).waitFor();
      await lines.focus();
      await page.keyboard.press('Home');
      await lines.getByText('1', { exact: true }).waitFor();
      assert.ok((await page.locator('[data-index]').count()) < 500);
    });
  });

  it('can be downloaded byte for byte', async () => {
    const command = 'head -c 5000000 /dev/urandom >/tmp/bytes; cat /tmp/bytes; sha256sum </tmp/bytes >&2';
    await openJob(await start({ command, name: 'bytes', merge_output: false }), async (page) => {
      await status(page, 'exited 0').waitFor();
      const saving = page.waitForEvent('download');
      await page.getByRole('button', { name: 'Download stdout' }).click();
      const bytes = await readFile(await (await saving).path());
      assert.equal(bytes.length, 5_000_000);
      await page.getByRole('radio', { name: 'stderr' }).check();
      await output(page, 'stderr').getByText(createHash('sha256').update(bytes).digest('hex')).waitFor();
    });
  });

  it('are shown with their colours, and without other control sequences', async () => {
    const command = String.raw`printf '\033]0;title\007\033[1;31mred\033[0m plain \033[7mturned\033[0m <b>x</b>\n'; exit 1`;
    const job = await start({ command, name: 'Print colours' });
    await openJob(job, async (page) => {
      await output(page).getByText('red plain turned <b>x</b>', { exact: true }).waitFor();
      const [red, plain] = await Promise.all([styleOf(page, 'red'), styleOf(page, ' plain ')]);
      assert.notEqual(red.color, plain.color);
      assert.equal(red.weight, '700');
      assert.equal(plain.weight, '400');
    });
    await keepScreenshots('jobs-ended', {
      account,
      path: addressOf(job),
      ready: (page) => page.getByText('End of stdout.').waitFor(),
      check: assertAccessible,
    });
  });

  it('pass axe while they run and in the list', async () => {
    const command = 'seq 1 200; while sleep 1; do date; done';
    const job = await start({ command, name: command });
    await keepScreenshots('jobs-running', {
      account,
      path: addressOf(job),
      ready: async (page) => {
        await page.getByRole('button', { name: 'Write to stdin' }).waitFor();
        await output(page).getByText('200', { exact: true }).waitFor();
      },
      check: assertAccessible,
    });
    await keepScreenshots('jobs-list', {
      account,
      path: addressOf(),
      ready: (page) => page.getByRole('link', { name: command }).waitFor(),
      check: assertAccessible,
    });
  });
});

/** The badge beside the name of the job. */
const status = (page: Page, text: string) =>
  page
    .locator('header')
    .filter({ has: page.getByRole('heading', { level: 2 }) })
    .getByText(text, { exact: true });

const commandBox = (page: Page) => page.getByRole('textbox', { name: 'Command', exact: true });

const output = (page: Page, stream = 'stdout') => page.getByRole('region', { name: `Text of ${stream}` });

async function writeLine(page: Page, line: string): Promise<void> {
  const box = page.getByLabel('A line for stdin');
  if ((await box.count()) === 0) await page.getByRole('button', { name: 'Write to stdin' }).click();
  await box.fill(line);
  const sent = page.waitForResponse(/\/stdin\?/);
  await page.getByRole('button', { name: 'Send line' }).click();
  assert.ok((await sent).ok(), 'the line was sent');
}

/** The number in the first line that is wholly on the screen, and its distance from the top of the region. */
const topLine = (page: Page) =>
  output(page).evaluate((region) => {
    const { top } = region.getBoundingClientRect();
    const line = [...region.querySelectorAll('[data-index]')].find((one) => one.getBoundingClientRect().top >= top);
    return { number: Number(line?.textContent), px: Math.round((line?.getBoundingClientRect().top ?? 0) - top) };
  });

/** How the piece of the output with this text is drawn. */
const styleOf = (page: Page, text: string) =>
  output(page).evaluate((region, wanted) => {
    const walker = document.createTreeWalker(region, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const { parentElement, nodeValue } = walker.currentNode;
      if (nodeValue !== wanted || !parentElement) continue;
      const { color, fontWeight } = getComputedStyle(parentElement);
      return { color, weight: fontWeight };
    }
    throw new Error(`no text ${wanted}`);
  }, text);
