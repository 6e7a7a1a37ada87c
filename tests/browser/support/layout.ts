// Checks that a page fits into the window.
import assert from 'node:assert/strict';
import type { Locator, Page } from 'playwright-core';

/** Fails when the page scrolls sideways, or when the element is not wholly in the window. */
export async function assertFits(page: Page, element?: Locator): Promise<void> {
  const { scroll, width } = await page.evaluate(() => ({
    scroll: document.documentElement.scrollWidth,
    width: innerWidth,
  }));
  assert.ok(scroll <= width, `the page is ${scroll} px wide in a window of ${width} px`);
  const box = await element?.boundingBox();
  if (box) assert.ok(box.x >= 0 && box.x + box.width <= width, JSON.stringify(box));
}
