// Keeps screenshots of the pages, for people to look at after a test run.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import type { TestAccount } from '../../e2e/support/accounts.ts';
import { NARROW, type THEMES, WIDE, type Window, withPage } from './browser.ts';

/**
 * The windows in which every page is looked at. A theme changes colours only, and a width the layout only, so each of both
 * is seen once. `SANDBAR_TEST_ALL_WINDOWS=1` adds the other two combinations, which takes a minute or two longer.
 */
const WINDOWS: readonly { theme: (typeof THEMES)[number]; size: typeof WIDE }[] = [
  { theme: 'light', size: WIDE },
  { theme: 'dark', size: NARROW },
  ...(process.env.SANDBAR_TEST_ALL_WINDOWS === '1'
    ? [
        { theme: 'light' as const, size: NARROW },
        { theme: 'dark' as const, size: WIDE },
      ]
    : []),
];

/** `SANDBAR_TEST_SCREENSHOTS` names another folder. The folder is not under version control. */
const FOLDER = process.env.SANDBAR_TEST_SCREENSHOTS || join(import.meta.dirname, '../../../test-results/screenshots');

/**
 * Opens `path` in each of the windows, waits for `ready` and saves `NAME-THEME-WIDTH.png`. `check` runs in each of them
 * before the screenshot.
 */
export async function keepScreenshots(
  name: string,
  {
    account,
    service,
    path,
    open,
    ready,
    check,
    allowed = [],
    fullPage = false,
  }: {
    account?: TestAccount;
    path: string;
    /** Comes before the page is opened, for example to sign in to another `service`. */
    open?: (page: Page) => Promise<void>;
    /** Whether the picture has the whole page, and not only what fits into the window. */
    fullPage?: boolean;
    ready: (page: Page) => Promise<unknown>;
    check?: (page: Page) => Promise<void>;
    /** As in {@link withPage}. */
    allowed?: readonly string[];
  } & Pick<Window, 'service'>,
): Promise<void> {
  mkdirSync(FOLDER, { recursive: true });
  for (const { theme, size } of WINDOWS) {
    const window = { theme, size, allowed, ...(account ? { account } : {}), ...(service ? { service } : {}) };
    await withPage(window, async (page) => {
      await open?.(page);
      await page.goto(path);
      await ready(page);
      await check?.(page);
      await page.screenshot({ path: join(FOLDER, `${name}-${theme}-${size.width}.png`), fullPage });
    });
  }
}
