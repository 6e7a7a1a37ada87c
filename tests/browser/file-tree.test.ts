// Tests the list of files of a machine in a browser: odd names and kinds of files, the keyboard, and changes of names.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Page } from 'playwright-core';
import { createAccount, destroyMachines, type TestAccount } from '../e2e/support/accounts.ts';
import { until } from '../e2e/support/service.ts';
import { assertAccessible } from './support/accessibility.ts';
import { withPage } from './support/browser.ts';
import { run } from './support/in-machine.ts';
import { keepScreenshots } from './support/screenshots.ts';

const CODE = `# Counts the lines of each file.
import sys

for name in sys.argv[1:]:
    with open(name) as file:
        print(name, sum(1 for line in file))
`;

describe('the list of files', () => {
  let account: TestAccount;
  let machine: Machine;
  before(async () => {
    account = await createAccount();
    machine = await account.createMachine();
  });
  after(() => destroyMachines(account));

  const inMachine = (command: string): Promise<string> => run(account, machine.id, command);
  const addressOf = (path: string) => `/machines/${machine.id}?tab=files&path=${path}`;
  const table = (page: Page) => page.getByRole('region', { name: 'Files' });
  const rowOf = (page: Page, name: string | RegExp) => table(page).getByRole('row', { name });
  /** Makes a folder by a command, and opens it. */
  const inFolder = async (path: string, prepare: string, work: (page: Page) => Promise<void>): Promise<void> => {
    await inMachine(`mkdir -p ${path} && cd ${path} && ${prepare}`);
    await withPage({ account }, async (page) => {
      await page.goto(addressOf(path));
      await table(page).waitFor();
      await work(page);
    });
  };
  const choose = async (page: Page, row: string | RegExp, action: string): Promise<void> => {
    await rowOf(page, row).getByRole('button', { name: 'Actions of' }).click();
    await page.getByRole('menuitem', { name: action }).click();
  };

  it('shows the kind, the mode, the owner and the target of each entry, and folders first', async () => {
    const prepare = 'mkdir z && echo hello > a && chmod 640 a && chown nobody a && ln -s a link && mkfifo pipe';
    await inFolder('/root/kinds', prepare, async (page) => {
      const names = await table(page).getByRole('link').allTextContents();
      assert.deepEqual(names, ['z', 'a', 'link', 'pipe']);
      await rowOf(page, /folder z .* 0755 root:root/).waitFor();
      await rowOf(page, /file a 6 B .* 0640 nobody:/).waitFor();
      await rowOf(page, /link link → a/).waitFor();
      await rowOf(page, /device pipe/).waitFor();
      await page.getByRole('link', { name: 'link', exact: true }).click();
      await page.getByLabel('Text of link').waitFor();
      await page.goto(addressOf('/root/kinds/pipe'));
      await page.getByText('This is a device, a pipe or a socket. It has no content to show.').waitFor();
    });
  });

  it('opens, saves, renames and deletes a file whose name is not UTF-8', async () => {
    await inFolder('/root/bytes', `printf x > "$(printf 'caf\\351')"`, async (page) => {
      await page.getByRole('link', { name: 'caf\uFFFD' }).click();
      await page.getByLabel('Text of caf\uFFFD').fill('saved');
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByText('Saved.', { exact: true }).waitFor();
      assert.equal(await inMachine(`cat "/root/bytes/$(printf 'caf\\351')"; ls /root/bytes | wc -l`), 'saved1\n');
      await page.getByRole('button', { name: 'Rename or move' }).click();
      await page.getByLabel('New name, or a path').fill('café');
      await page.keyboard.press('Enter');
      await page.getByLabel('Text of café').waitFor();
      assert.equal(await inMachine('ls /root/bytes'), 'café\n');
      await page.getByRole('button', { name: 'Delete' }).click();
      await page.getByRole('alertdialog').getByRole('button', { name: 'Delete' }).click();
      await page.getByText('This folder is empty.').waitFor();
      assert.equal(await inMachine('ls -A /root/bytes'), '');
    });
  });

  it('shows names with markup, control characters and right-to-left marks as text', async () => {
    const names = ['<img src=x onerror=alert(1)>', 'a\\nb', 'exe\\342\\200\\256txt.sh'];
    const prepare = names.map((name) => `touch "$(printf '${name}')"`).join(' && ');
    await inFolder('/root/odd', prepare, async (page) => {
      await page.getByRole('link', { name: '<img src=x onerror=alert(1)>' }).waitFor();
      await page.getByRole('link', { name: 'a\\u000Ab' }).waitFor();
      await page.getByRole('link', { name: 'exe\\u202Etxt.sh' }).waitFor();
      assert.equal(await page.locator('main img').count(), 0);
    });
  });

  it('makes a folder, renames and deletes, and asks before it replaces or deletes what is there', async () => {
    await inFolder('/root/change', 'echo 1 > one && echo 2 > two && mkdir full && touch full/x', async (page) => {
      await page.getByRole('button', { name: 'New folder' }).click();
      await page.getByRole('dialog', { name: 'New folder' }).waitFor();
      await page.keyboard.type('sub');
      await page.keyboard.press('Enter');
      await rowOf(page, /folder sub/).waitFor();

      await choose(page, /file one/, 'Rename or move…');
      await page.getByLabel('New name, or a path').fill('two');
      await page.getByRole('button', { name: 'Move' }).click();
      await page.getByRole('button', { name: 'Replace what is there' }).click();
      await rowOf(page, /file one/).waitFor({ state: 'detached' });
      assert.equal(await inMachine('cd /root/change; cat two'), '1\n');

      await choose(page, /folder full/, 'Delete…');
      const question = page.getByRole('alertdialog', { name: /Delete full ?\?/ });
      await question.getByRole('button', { name: 'Delete' }).click();
      await question.getByText('The folder is not empty.').waitFor();
      await question.getByRole('button', { name: 'Delete everything in it' }).click();
      await rowOf(page, /folder full/).waitFor({ state: 'detached' });
      assert.equal(await inMachine('ls -A /root/change'), 'sub\ntwo\n');
    });
  });

  it('is used by the keyboard alone', async () => {
    await inFolder('/root/keys', 'mkdir -p folder/deep && touch a b c', async (page) => {
      const focused = () => page.evaluate(() => document.activeElement?.textContent);
      await table(page).getByRole('link', { name: 'folder' }).focus();
      for (const [key, name] of [
        ['ArrowDown', 'a'],
        ['ArrowDown', 'b'],
        ['ArrowUp', 'a'],
        ['End', 'c'],
        ['ArrowDown', 'c'],
        ['Home', 'folder'],
      ] as const) {
        await page.keyboard.press(key);
        assert.equal(await focused(), name, key);
      }
      await page.keyboard.press('Enter');
      await page.getByRole('link', { name: 'deep' }).waitFor();
      await page.goBack();
      await table(page).getByRole('link', { name: 'a', exact: true }).focus();
      await page.keyboard.press('Tab');
      await page.keyboard.press('Enter');
      await page.getByRole('menuitem', { name: 'Delete…' }).waitFor();
      await page.keyboard.press('End');
      await page.keyboard.press('Enter');
      // The focus begins on "Cancel".
      const question = page.getByRole('alertdialog', { name: /Delete a ?\?/ });
      await question.waitFor();
      await until('the focus is in the question', async () => (await focused()) === 'Cancel');
      await page.keyboard.press('Escape');
      await question.waitFor({ state: 'detached' });
      assert.equal(await inMachine('ls /root/keys/a'), '/root/keys/a\n');
    });
  });

  it('shows what a program in the machine changes, without a reload', async () => {
    await inFolder('/root/live', 'touch first', async (page) => {
      await rowOf(page, /file first/).waitFor();
      await inMachine('cd /root/live; touch second; rm first');
      await rowOf(page, /file second/).waitFor();
      await rowOf(page, /file first/).waitFor({ state: 'detached' });
    });
  });

  it('passes axe in both themes and widths', async () => {
    const folder = '/root/project';
    const long = 'a-long-name-that-does-not-fit-into-a-narrow-window-at-all.tar.gz';
    await inMachine(
      `mkdir -p ${folder}/src ${folder}/data && cd ${folder} && printf '%s' '${CODE}' > count.py && ln -s src/main main &&
       truncate -s 12345678 ${long} && chmod 755 count.py && printf '{}\\n' > package.json && mkdir -p /root/none`,
    );
    const shown = { account, check: assertAccessible };
    const waitFor = (name: string) => (page: Page) => page.getByRole('link', { name }).waitFor();
    await keepScreenshots('files', { ...shown, path: addressOf(folder), ready: waitFor('count.py') });
    const text = (page: Page) => page.getByLabel('Text of count.py');
    const file = addressOf(`${folder}/count.py`);
    await keepScreenshots('file-editor', { ...shown, path: file, ready: (page) => text(page).waitFor() });
    await keepScreenshots('files-empty', {
      ...shown,
      path: addressOf('/root/none'),
      ready: (page) => page.getByText('This folder is empty.').waitFor(),
    });
    let edits = 0;
    await keepScreenshots('file-changed', {
      ...shown,
      path: file,
      ready: async (page) => {
        edits += 1;
        await text(page).fill('print("mine")\n');
        await inMachine(`echo '# Edit ${edits}' >> ${folder}/count.py`);
        await page.getByRole('button', { name: 'Save' }).click();
        await page.getByRole('alertdialog').waitFor();
      },
    });
  });
});
