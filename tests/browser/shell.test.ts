// Tests that the keyboard alone reaches everything in the frame of the dashboard: the navigation, the command palette,
// menus and dialogs.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Locator, Page } from 'playwright-core';
import { createAccount, destroyMachines, type TestAccount } from '../e2e/support/accounts.ts';
import { NARROW, withPage } from './support/browser.ts';
import { waitForHeading } from './support/headings.ts';

/** A name that would run a script if a page took it for HTML. */
const NAME = 'build <img src=x onerror=alert(1)> worker';

let account: TestAccount;
let machine: Machine;
before(async () => {
  account = await createAccount();
  const volume = account.call('POST', '/v1/volumes', { name: 'data', size_gb: 5 });
  [machine] = await Promise.all([account.createMachine({ name: NAME }), volume]);
});
after(() => destroyMachines(account));

const palette = (page: Page) => page.getByRole('dialog', { name: 'Go to a page or a machine' });
const hasFocus = (locator: Locator): Promise<boolean> =>
  locator.evaluate((element) => element === document.activeElement);

async function waitForFocus(locator: Locator): Promise<void> {
  const focused = locator.and(locator.page().locator(':focus'));
  await focused.waitFor();
}

/** What has the focus: its name as text, and whether a person sees that it has the focus. */
const focused = (page: Page): Promise<{ name: string; isMarked: boolean }> =>
  page.evaluate(() => {
    const element = document.activeElement as HTMLElement;
    const { outlineStyle, outlineWidth } = getComputedStyle(element);
    const { right, bottom } = element.getBoundingClientRect();
    const name = element.getAttribute('aria-label') ?? element.textContent ?? '';
    const isMarked = outlineStyle !== 'none' && parseFloat(outlineWidth) > 0 && right > 0 && bottom > 0;
    return { name: name.trim(), isMarked };
  });

/** Presses Tab until the focus leaves the document. Fails at an element that does not show that it has the focus. */
async function tabThrough(page: Page): Promise<string[]> {
  const names: string[] = [];
  for (let step = 0; step < 60; step++) {
    await page.keyboard.press('Tab');
    if (await page.evaluate(() => document.activeElement === document.body)) return names;
    const { name, isMarked } = await focused(page);
    assert.ok(isMarked, `"${name}" has the focus and does not show it`);
    names.push(name);
  }
  throw new Error(`The focus never left the page: ${names.join(', ')}`);
}

describe('the keyboard', () => {
  it('reaches the navigation and then the page, and always shows where the focus is', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/volumes');
      await page.getByRole('button', { name: 'Actions of data' }).waitFor();
      const names = await tabThrough(page);
      const expected = [
        'Skip to the content',
        'Sandbar',
        'Search Ctrl K',
        'Machines',
        'Volumes',
        'Snapshots',
        'Images',
      ];
      assert.deepEqual(names.slice(0, 7), expected);
      const rest = ['Activity', 'API keys', 'Quotas', 'Billing', 'Account', 'Theme', 'Sign out', 'New volume'];
      assert.deepEqual(names.slice(7, 15), rest);
      assert.ok(names.includes('Actions of data'), names.join(', '));
    });
  });

  it('skips the navigation', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/volumes');
      await page.getByRole('button', { name: 'Actions of data' }).waitFor();
      await page.keyboard.press('Tab');
      await page.keyboard.press('Enter');
      await waitForFocus(page.getByRole('main'));
      await page.keyboard.press('Tab');
      await waitForFocus(page.getByRole('button', { name: 'New volume' }));
      assert.equal(new URL(page.url()).hash, '');
    });
  });

  it('follows a link, and the navigation says which page is open', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/volumes');
      const navigation = page.getByRole('navigation', { name: 'Pages' });
      await navigation.getByRole('link', { name: 'Images' }).focus();
      await page.keyboard.press('Enter');
      await waitForHeading(page, 'Images');
      assert.deepEqual(await navigation.locator('[aria-current=page]').allTextContents(), ['Images']);
      await page.goto(`/machines/${machine.id}?tab=ports`);
      const tabs = page.getByRole('navigation', { name: 'Parts of the machine' });
      await tabs.waitFor();
      assert.deepEqual(await tabs.locator('[aria-current]').allTextContents(), ['Ports']);
    });
  });

  it('opens a dialog that holds the focus, and gives it back at Escape', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/volumes');
      const button = page.getByRole('button', { name: 'New volume' });
      await button.focus();
      await page.keyboard.press('Enter');
      const dialog = page.getByRole('dialog', { name: 'New volume' });
      await dialog.waitFor();
      await dialog.locator(':focus').waitFor();
      for (let step = 0; step < 12; step++) {
        await page.keyboard.press(step < 8 ? 'Tab' : 'Shift+Tab');
        await dialog.locator(':focus').waitFor();
      }
      await page.keyboard.press('Escape');
      await dialog.waitFor({ state: 'hidden' });
      await waitForFocus(button);
    });
  });

  it('opens a menu, moves in it by arrow keys and letters, and gives the focus back at Escape', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/volumes');
      const button = page.getByRole('button', { name: 'Actions of data' });
      await button.focus();
      await page.keyboard.press('Enter');
      const items = page.getByRole('menuitem');
      await waitForFocus(items.first());
      await page.keyboard.press('ArrowUp');
      await waitForFocus(items.last());
      await page.keyboard.press('Home');
      await waitForFocus(items.first());
      await page.keyboard.press('Escape');
      await page.getByRole('menu').waitFor({ state: 'hidden' });
      await waitForFocus(button);
    });
  });

  it('opens the menu of a narrow window, which holds the focus and closes after a choice', async () => {
    await withPage({ account, size: NARROW }, async (page) => {
      await page.goto('/volumes');
      const button = page.getByRole('button', { name: 'Menu' });
      await button.focus();
      await page.keyboard.press('Enter');
      const menu = page.getByRole('dialog', { name: 'Menu' });
      await menu.locator(':focus').waitFor();
      for (let step = 0; step < 20; step++) {
        await page.keyboard.press('Tab');
        await menu.locator(':focus').waitFor();
      }
      await page.keyboard.press('Escape');
      await waitForFocus(button);
      await page.keyboard.press('Enter');
      await menu.getByRole('link', { name: 'Images' }).focus();
      await page.keyboard.press('Enter');
      await waitForHeading(page, 'Images');
      await menu.waitFor({ state: 'hidden' });
    });
  });
});

describe('the command palette', () => {
  it('finds pages by name, opens them, and gives the focus back at Escape', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/volumes');
      const button = page.getByRole('button', { name: 'New volume' });
      await button.focus();
      await page.keyboard.press('Control+k');
      await waitForFocus(palette(page).getByRole('combobox', { name: 'Page or machine' }));
      await page.keyboard.press('Escape');
      await palette(page).waitFor({ state: 'hidden' });
      await waitForFocus(button);
      await page.keyboard.press('Control+k');
      await waitForFocus(palette(page).getByRole('combobox'));
      await page.keyboard.type('key');
      await palette(page).getByRole('option').filter({ hasText: 'Images' }).waitFor({ state: 'detached' });
      assert.deepEqual(await palette(page).getByRole('option').allTextContents(), ['API keys']);
      await page.keyboard.press('Enter');
      await page.waitForURL(/\/api-keys$/);
      await waitForHeading(page, 'API keys');
      await palette(page).waitFor({ state: 'hidden' });
    });
  });

  it('finds machines by words of their name and by id, and shows a name as text', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/images');
      await waitForHeading(page, 'Images');
      for (const words of ['worker build', machine.id.slice(0, 18).toUpperCase()]) {
        await page.keyboard.press('Control+k');
        await waitForFocus(palette(page).getByRole('combobox'));
        await page.keyboard.type(words);
        const option = palette(page).getByRole('option');
        await option.filter({ hasText: NAME }).waitFor();
        await option.filter({ hasText: 'Images' }).waitFor({ state: 'detached' });
        assert.equal(await option.count(), 1);
        await page.keyboard.press('Enter');
        await page.waitForURL(`**/machines/${machine.id}`);
        await palette(page).waitFor({ state: 'hidden' });
        await page.getByRole('heading', { name: NAME, level: 1 }).waitFor();
      }
    });
  });

  it('says when nothing has these words, and closes by the same keys', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/images');
      await waitForHeading(page, 'Images');
      await page.getByRole('button', { name: 'Search' }).click();
      await waitForFocus(palette(page).getByRole('combobox'));
      await page.keyboard.type(`no ${randomUUID()}`);
      await palette(page).getByText('No page or machine has these words.').waitFor();
      assert.equal(await palette(page).getByRole('option').count(), 0);
      await page.keyboard.press('Enter');
      assert.equal(await hasFocus(palette(page).getByRole('combobox')), true);
      await page.keyboard.press('Control+k');
      await palette(page).waitFor({ state: 'hidden' });
    });
  });
});
