// Tests the buttons that copy, with and without the browser's clipboard API, which pages without TLS do not have.
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import type { Page } from 'playwright-core';
import { createAccount, type TestAccount } from '../e2e/support/accounts.ts';
import { withPage } from './support/browser.ts';

type Clipboard = 'interface' | 'command' | 'refused';

describe('copying', () => {
  let account: TestAccount;
  before(async () => {
    account = await createAccount();
  });

  const open = (path: string, clipboard: Clipboard, work: (page: Page) => Promise<void>): Promise<void> =>
    withPage({ account }, async (page) => {
      await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
      await page.addInitScript((kind) => {
        if (kind !== 'interface') Object.defineProperty(navigator, 'clipboard', { value: undefined });
        if (kind === 'refused') document.execCommand = () => false;
      }, clipboard);
      await page.goto(path);
      await work(page);
    });
  const copied = async (page: Page): Promise<string> => {
    const reader = await page.context().newPage();
    await reader.goto('/volumes');
    return reader.evaluate(() => navigator.clipboard.readText());
  };
  const selected = (page: Page): Promise<string> => page.evaluate(() => String(getSelection()));
  const REFUSED = 'The browser does not allow copying here. Copy the selected text yourself.';

  for (const clipboard of ['interface', 'command', 'refused'] as const) {
    it(`of a sample (${clipboard})`, async () => {
      await open('/volumes', clipboard, async (page) => {
        await page.getByRole('tab', { name: 'CLI' }).click();
        const code = (await page.getByRole('tabpanel', { name: 'CLI' }).textContent()) ?? '';
        const button = page.getByRole('button', { name: /^(Copy|Copied)$/ });
        await button.click();
        if (clipboard === 'refused') {
          await page.getByText(REFUSED).waitFor();
          assert.equal(await selected(page), code);
        } else {
          await page.getByRole('button', { name: 'Copied' }).waitFor();
          assert.equal(await copied(page), code);
          assert.ok(await button.evaluate((element) => element === document.activeElement), 'the focus stays');
        }
      });
    });

    it(`of a new API key, in a window that only its button closes (${clipboard})`, async () => {
      await open('/api-keys', clipboard, async (page) => {
        await page.getByRole('button', { name: 'New API key' }).first().click();
        await page.getByLabel('Name').fill(clipboard);
        await page.getByRole('button', { name: 'Create key' }).click();
        const shown = page.getByRole('alertdialog', { name: `The key ${clipboard}` });
        const key = (await shown.getByTestId('new-key').textContent()) ?? '';
        await shown.getByRole('button', { name: 'Copy' }).click();
        if (clipboard === 'refused') {
          await shown.getByText(REFUSED).waitFor();
          assert.equal(await selected(page), key);
        } else {
          await shown.getByRole('button', { name: 'Copied' }).waitFor();
          assert.equal(await copied(page), key);
        }
        await page.keyboard.press('Escape');
        await page.mouse.click(5, 5);
        await shown.waitFor();
        await shown.getByRole('button', { name: 'I have the key' }).click();
        await shown.waitFor({ state: 'detached' });
      });
    });
  }
});
