// Keeps screenshots of the pages, for people to look at after a test run.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import type { TestAccount } from '../../e2e/support/accounts.ts';
import { NARROW, THEMES, WIDE, type Window, withPage } from './browser.ts';

/** A person who names a folder wants all screenshots. The default folder is not under version control. */
const HAS_ALL = Boolean(process.env.SANDBAR_TEST_SCREENSHOTS);
const FOLDER = process.env.SANDBAR_TEST_SCREENSHOTS || join(import.meta.dirname, '../../../test-results/screenshots');

/**
 * The windows in which each page is opened. Two of them show both themes and both widths. Opening all four pairs of them
 * takes twice as long.
 */
const WINDOWS: readonly Required<Pick<Window, 'theme' | 'size'>>[] = HAS_ALL
  ? THEMES.flatMap((theme) => [WIDE, NARROW].map((size) => ({ theme, size })))
  : [
      { theme: 'light', size: WIDE },
      { theme: 'dark', size: NARROW },
    ];

/**
 * Opens `path` in each window of {@link WINDOWS}, waits for `ready` and saves `NAME-THEME-WIDTH.png`. `check` runs before
 * the screenshot. With `SANDBAR_TEST_SCREENSHOTS=FOLDER` there are four windows: each theme, wide and narrow.
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
