// Tests the files of a machine in a browser: uploads, downloads, the editor and odd names.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import {
  closeSync,
  createReadStream,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Page } from 'playwright-core';
import { createAccount, destroyMachines, type TestAccount } from '../e2e/support/accounts.ts';
import { until } from '../e2e/support/service.ts';
import { withPage } from './support/browser.ts';
import { run } from './support/in-machine.ts';

const MB = 1_000_000;
const LARGE = 200 * MB;

describe('the files of a machine', () => {
  let account: TestAccount;
  let machine: Machine;
  const folder = mkdtempSync(join(tmpdir(), 'sandbar-browser-'));
  const large = join(folder, 'large.bin');
  before(async () => {
    account = await createAccount();
    machine = await account.createMachine({ rootfs_size_gb: 4 });
    writeLarge(large);
  });
  after(async () => {
    rmSync(folder, { recursive: true });
    await destroyMachines(account);
  });

  const inMachine = (command: string): Promise<string> => run(account, machine.id, command);
  const addressOf = (path: string) => `/machines/${machine.id}?tab=files&path=${path}`;
  const inFolder = async (path: string, work: (page: Page) => Promise<void>): Promise<void> => {
    await inMachine(`mkdir -p ${path}`);
    await withPage({ account }, async (page) => {
      await page.goto(addressOf(path));
      await page.getByRole('button', { name: 'Upload' }).waitFor();
      await work(page);
    });
  };
  const choose = async (page: Page, path: string): Promise<void> => {
    const chooser = page.waitForEvent('filechooser');
    await page.getByRole('button', { name: 'Upload' }).click();
    await (await chooser).setFiles(path);
  };
  const uploads = (page: Page) => page.getByRole('region', { name: 'Uploads' });

  it('a file of 200 MB is uploaded with its progress, and downloaded with every byte', async () => {
    await inFolder('/root/large', async (page) => {
      await choose(page, large);
      await uploads(page)
        .getByText(/^([1-9]|\d\d) %, .* of 200 MB$/)
        .waitFor();
      await uploads(page).getByText('done, 200 MB').waitFor({ timeout: 120_000 });
      const digest = await sha256(large);
      assert.match(await inMachine('sha256sum /root/large/large.bin'), new RegExp(`^${digest}`));
      await page.getByRole('link', { name: 'large.bin' }).click();
      const download = page.waitForEvent('download');
      await page.getByRole('link', { name: 'Download' }).click();
      assert.equal((await download).suggestedFilename(), 'large.bin');
      assert.equal(await sha256(await (await download).path()), digest);
    });
    await inMachine('rm -r /root/large');
  });

  it('a canceled upload leaves nothing in the machine', async () => {
    const usedKb = async () => Number(await inMachine("sync; df -k / | awk 'END { print $3 }'"));
    const usedBefore = await usedKb();
    await inFolder('/root/canceled', async (page) => {
      await limitUpload(page, 10 * MB);
      await choose(page, large);
      await until('a part of the file takes room', async () => (await usedKb()) > usedBefore + 10_000);
      await uploads(page).getByRole('button', { name: 'Cancel' }).click();
      await uploads(page).getByText('Cancelled. Nothing was written to the machine.').waitFor();
      assert.equal(await inMachine('ls -A /root/canceled'), '');
      await until('the room is free again', async () => (await usedKb()) < usedBefore + 2_000);
      assert.equal(await inMachine('ls -A /root/canceled'), '');
    });
  });

  it('files and folders can be dropped, and a file that exists is replaced only after a question', async () => {
    mkdirSync(join(folder, 'photos/2026'), { recursive: true });
    writeFileSync(join(folder, 'photos/2026/a.txt'), 'a');
    writeFileSync(join(folder, 'photos/b.txt'), 'b');
    writeFileSync(join(folder, 'c.txt'), 'new');
    await inFolder('/root/dropped', async (page) => {
      await inMachine('printf old > /root/dropped/c.txt');
      await drop(page, [join(folder, 'photos'), join(folder, 'c.txt')]);
      await uploads(page).getByText('2 of 3 uploaded').waitFor();
      await uploads(page).getByText('A file of this name exists already.').waitFor();
      const contents = 'cd /root/dropped; cat photos/2026/a.txt photos/b.txt c.txt';
      assert.equal(await inMachine(contents), 'abold');
      await uploads(page).getByRole('button', { name: 'Replace' }).click();
      await uploads(page).getByText('3 of 3 uploaded').waitFor();
      assert.equal(await inMachine(contents), 'abnew');
      await page.getByRole('link', { name: 'photos' }).click();
      await page.getByRole('link', { name: '2026' }).click();
      await page.getByRole('link', { name: 'a.txt' }).waitFor();
    });
  });

  it('a small text is edited, and keeps the line ends and the mode of its file', async () => {
    await inFolder('/root/texts', async (page) => {
      await inMachine("cd /root/texts; printf 'one\\r\\ntwo\\r\\n' > dos.txt; chmod 750 dos.txt; printf '\\0' > data");
      await page.getByRole('link', { name: 'dos.txt' }).click();
      await page.getByLabel('Text of dos.txt').fill('one\nthree\n');
      await page.keyboard.press('Control+s');
      await page.getByText('Saved.', { exact: true }).waitFor();
      assert.equal(await inMachine('cd /root/texts; cat dos.txt; stat -c %a dos.txt'), 'one\r\nthree\r\n750\n');
      await page.goto(addressOf('/root/texts/data'));
      await page.getByText('It is not a text in UTF-8. Download it to look at it.').waitFor();
    });
  });

  it('an edit of a file that changed meanwhile asks first', async () => {
    await inFolder('/root/changed', async (page) => {
      await inMachine('printf mine > /root/changed/a.txt');
      await page.getByRole('link', { name: 'a.txt' }).click();
      const text = page.getByLabel('Text of a.txt');
      await text.fill('my text');
      await inMachine('printf theirs > /root/changed/a.txt');
      const question = page.getByRole('alertdialog', { name: 'a.txt was changed in the machine' });
      await page.getByRole('button', { name: 'Save' }).click();
      await question.getByRole('button', { name: 'Keep editing' }).click();
      assert.equal(await inMachine('cat /root/changed/a.txt'), 'theirs');
      assert.equal(await text.inputValue(), 'my text');
      await page.getByRole('button', { name: 'Save' }).click();
      await question.getByRole('button', { name: 'Replace it' }).click();
      await page.getByText('Saved.', { exact: true }).waitFor();
      assert.equal(await inMachine('cat /root/changed/a.txt'), 'my text');

      await text.fill('a second text');
      await inMachine('printf again > /root/changed/a.txt');
      await page.getByRole('button', { name: 'Save' }).click();
      await question.getByRole('button', { name: 'Discard my changes' }).click();
      await until('the present text is shown', async () => (await text.inputValue()) === 'again');
    });
  });

  it('an edit stays when the file becomes one that cannot be edited', async () => {
    await inFolder('/root/kept', async (page) => {
      await inMachine('printf text > /root/kept/a.txt');
      await page.getByRole('link', { name: 'a.txt' }).click();
      const text = page.getByLabel('Text of a.txt');
      await text.fill('my text');
      await inMachine("printf '\\0' > /root/kept/a.txt");
      await page.getByText('The file has changed in the machine since you began.').waitFor();
      assert.equal(await text.inputValue(), 'my text');
      await inMachine('truncate -s 2M /root/kept/a.txt');
      await page.getByText(/^2\.\d MB, mode/).waitFor();
      assert.equal(await text.inputValue(), 'my text');
      await page.getByRole('button', { name: 'Discard the changes' }).click();
      await page.getByText('It is larger than 1 MiB. Download it to look at it.').waitFor();
    });
  });
});

/** Bytes that differ by position, so that a lost, doubled or moved piece changes the digest. */
function writeLarge(path: string): void {
  const piece = randomBytes(MB);
  const file = openSync(path, 'w');
  for (let count = 0; count < LARGE / MB; count++) {
    piece.writeUInt32LE(count);
    writeSync(file, piece);
  }
  closeSync(file);
}

async function sha256(path: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const piece of createReadStream(path)) hash.update(piece);
  return hash.digest('hex');
}

/** Makes uploads slow, so that they are under way for a known time. */
async function limitUpload(page: Page, bytesPerSecond: number): Promise<void> {
  const browser = await page.context().newCDPSession(page);
  const conditions = { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: bytesPerSecond };
  await browser.send('Network.emulateNetworkConditions', conditions);
}

/** Drops files and folders of this computer onto the page, as a person does with the mouse. */
async function drop(page: Page, files: string[]): Promise<void> {
  const browser = await page.context().newCDPSession(page);
  const { x, y } = (await page.getByRole('region', { name: 'Folder' }).boundingBox()) ?? { x: 0, y: 0 };
  for (const type of ['dragEnter', 'dragOver', 'drop'] as const) {
    const data = { items: [], files, dragOperationsMask: 1 };
    await browser.send('Input.dispatchDragEvent', { type, x: x + 20, y: y + 10, data });
  }
}
