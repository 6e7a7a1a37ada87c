// Tests what every page of the dashboard has around it: the theme, titles, an icon, messages, and how often it asks.
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import type { Page } from 'playwright-core';
import { createAccount, type TestAccount } from '../e2e/support/accounts.ts';
import { assertAccessible } from './support/accessibility.ts';
import { NARROW, withPage } from './support/browser.ts';
import { waitForHeading } from './support/headings.ts';
import { keepScreenshots } from './support/screenshots.ts';

let account: TestAccount;
before(async () => {
  account = await createAccount();
});

const DARK = 'rgb(13, 19, 23)';
const LIGHT = 'rgb(247, 248, 248)';

/** The background of every frame that the browser rendered since the document began. */
const backgrounds = (page: Page) =>
  page.evaluate(() => [...new Set((globalThis as unknown as { shown: string[] }).shown)]);
const recordBackgrounds = (page: Page) =>
  page.addInitScript(() => {
    const shown: string[] = [];
    Object.assign(globalThis, { shown });
    const look = () => {
      if (document.body) shown.push(getComputedStyle(document.body).backgroundColor);
      requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });

describe('the theme', () => {
  for (const [system, chosen, colour] of [
    ['light', 'dark', DARK],
    ['dark', 'light', LIGHT],
  ] as const) {
    it(`stays ${chosen} when that was chosen, from the first frame on, although the system is ${system}`, async () => {
      await withPage({ account, theme: system }, async (page) => {
        await page.goto('/quotas');
        await page.getByLabel('Theme').selectOption(chosen);
        await recordBackgrounds(page);
        await page.reload();
        await waitForHeading(page, 'Quotas');
        assert.deepEqual(await backgrounds(page), [colour]);
        assert.equal(await page.getByLabel('Theme').inputValue(), chosen);
      });
    });
  }

  it('follows the system without a choice, also when the system changes, and again after a choice', async () => {
    await withPage({ account, theme: 'dark' }, async (page) => {
      const background = (colour: string) =>
        page.waitForFunction((wanted) => getComputedStyle(document.body).backgroundColor === wanted, colour);
      await recordBackgrounds(page);
      await page.goto('/quotas');
      await waitForHeading(page, 'Quotas');
      assert.deepEqual(await backgrounds(page), [DARK]);
      await page.emulateMedia({ colorScheme: 'light' });
      await background(LIGHT);
      await page.getByLabel('Theme').selectOption('Dark theme');
      await background(DARK);
      await page.getByLabel('Theme').selectOption('System theme');
      await background(LIGHT);
      assert.equal(await page.evaluate(() => localStorage.length), 0);
    });
  });

  it('is dark before any script ran when the system is dark', async () => {
    await withPage({ theme: 'dark', allowed: ['net::ERR_FAILED'] }, async (page) => {
      await page.route('**/assets/*.js', (route) => route.abort());
      await page.goto('/sign-in', { waitUntil: 'domcontentloaded' });
      const colour = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      assert.equal(colour, DARK);
    });
  });
});

describe('the frame', () => {
  it('gives every page a title and an icon', async () => {
    await withPage({ account }, async (page, context) => {
      for (const [path, title] of [
        ['/machines', 'Machines'],
        ['/machines?new=true', 'Create a machine'],
        ['/volumes', 'Volumes'],
        ['/snapshots', 'Snapshots'],
        ['/images', 'Images'],
        ['/activity', 'Activity'],
        ['/api-keys', 'API keys'],
        ['/quotas', 'Quotas'],
        ['/billing', 'Billing'],
        ['/account', 'Account'],
        ['/nope', 'No such page'],
      ] as const) {
        await page.goto(path);
        await page.waitForFunction((wanted) => document.title === wanted, `${title} · Sandbar`);
      }
      const icon = await page.locator('link[rel=icon]').getAttribute('href');
      const { status, type } = await context.request
        .get(String(icon))
        .then((response) => ({ status: response.status(), type: response.headers()['content-type'] }));
      assert.deepEqual([status, type], [200, 'image/svg+xml']);
    });
  });

  it('says that a URL has no page, with and without a session', async () => {
    for (const path of ['/nope', '/machines/x/y/z']) {
      for (const who of [{}, { account }]) {
        await withPage(who, async (page) => {
          await page.goto(path);
          await waitForHeading(page, 'There is no such page');
          assert.equal(await page.getByRole('main').count(), 1);
          await page.getByRole('link', { name: 'Go to the machines' }).click();
          await page.waitForURL('account' in who ? /\/machines$/ : /\/sign-in/);
        });
      }
    }
  });

  it('asks nothing while its window is hidden, and at once when it is shown again', async () => {
    await withPage({ account }, async (page, context) => {
      const asked: string[] = [];
      await page.goto('/machines');
      await waitForHeading(page, 'Machines');
      const setVisibility = (state: string) =>
        page.evaluate((value) => {
          Object.defineProperty(document, 'visibilityState', { value, configurable: true });
          document.dispatchEvent(new Event('visibilitychange', { bubbles: true }));
        }, state);
      await page.waitForResponse('**/v1/machines');
      await setVisibility('hidden');
      // An answer may be under way.
      await page.waitForLoadState('networkidle');
      context.on('request', (request) => void asked.push(request.url()));
      // Longer than two polls.
      await page.waitForTimeout(5_000);
      assert.deepEqual(asked, []);
      const next = page.waitForResponse('**/v1/machines');
      await setVisibility('visible');
      await next;
    });
  });

  it('shows that a page is unknown, and passes axe', async () => {
    await keepScreenshots('unknown-page', {
      account,
      path: '/machines/x/y/z',
      ready: (page) => waitForHeading(page, 'There is no such page'),
      check: assertAccessible,
    });
  });
});

describe('a message', () => {
  /** A sign-out that fails shows one on any page. */
  async function failToSignOut(page: Page): Promise<void> {
    await page.route('**/v1/auth/sign-out', (route) =>
      route.fulfill({ status: 403, json: { code: 'forbidden', detail: 'No.' } }),
    );
    await page.getByRole('button', { name: 'Sign out' }).click();
  }

  it('about a failure is announced, stays, and is dismissed by keyboard', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/account');
      await waitForHeading(page, 'Account');
      await failToSignOut(page);
      const toast = page.getByRole('dialog', { name: 'You are still signed in' });
      await toast.waitFor();
      await page.locator('[aria-live=polite]').filter({ has: toast }).waitFor();
      await assertAccessible(page);
      await page.keyboard.press('F6');
      await page.keyboard.press('Tab');
      await page.keyboard.press('Tab');
      await page.keyboard.press('Enter');
      await toast.waitFor({ state: 'detached' });
    });
  });

  it('does not cover a button permanently in a narrow window', async () => {
    await withPage({ account, size: NARROW }, async (page) => {
      await page.goto('/account');
      await waitForHeading(page, 'Account');
      await page.getByRole('button', { name: 'Menu' }).click();
      await failToSignOut(page);
      const toast = page.getByRole('dialog', { name: 'You are still signed in' });
      await toast.waitFor();
      await page.getByRole('dialog', { name: 'Menu' }).getByRole('button', { name: 'Close' }).click();
      await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
      const last = page.getByRole('main').getByRole('button').last();
      const [below, above] = [await toast.boundingBox(), await last.boundingBox()];
      assert.ok(below && above);
      assert.ok(above.y + above.height <= below.y, `the button ends at ${above.y + above.height}, below ${below.y}`);
      await last.click({ trial: true });
    });
  });
});
