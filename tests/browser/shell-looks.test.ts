// Keeps pictures of what opens above a page of the dashboard, and runs axe in it: the palette, menus and dialogs.
import { after, before, describe, it } from 'node:test';
import type { Page } from 'playwright-core';
import { createAccount, destroyMachines, type TestAccount } from '../e2e/support/accounts.ts';
import { assertAccessible } from './support/accessibility.ts';
import { NARROW } from './support/browser.ts';
import { keepScreenshots } from './support/screenshots.ts';

const NAME = 'build <img src=x onerror=alert(1)> worker';

let account: TestAccount;
before(async () => {
  account = await createAccount();
  const volume = account.call('POST', '/v1/volumes', { name: 'data', size_gb: 5 });
  await Promise.all([account.createMachine({ name: NAME }), volume]);
});
after(() => destroyMachines(account));

describe('the command palette', () => {
  it('passes axe in both themes and widths', async () => {
    await keepScreenshots('palette', {
      account,
      path: '/volumes',
      ready: async (page) => {
        await page.getByRole('button', { name: 'Actions of data' }).waitFor();
        await page.keyboard.press('Control+k');
        await page.getByRole('dialog').getByRole('option').filter({ hasText: NAME }).waitFor();
      },
      check: assertAccessible,
    });
  });
});

describe('menus and dialogs', () => {
  it('pass axe in both themes and widths', async () => {
    const ready = (page: Page) => page.getByRole('button', { name: 'Actions of data' });
    await keepScreenshots('row-menu', {
      account,
      path: '/volumes',
      ready: async (page) => {
        await ready(page).click();
        await page.getByRole('menuitem').first().waitFor();
      },
      check: assertAccessible,
    });
    await keepScreenshots('dialog', {
      account,
      path: '/volumes',
      ready: async (page) => {
        await page.getByRole('button', { name: 'New volume' }).click();
        await page.getByRole('dialog').waitFor();
      },
      check: assertAccessible,
    });
    await keepScreenshots('narrow-menu', {
      account,
      path: '/volumes',
      ready: async (page) => {
        await ready(page).waitFor();
        if (page.viewportSize()?.width === NARROW.width) await page.getByRole('button', { name: 'Menu' }).click();
      },
      check: assertAccessible,
    });
  });
});
