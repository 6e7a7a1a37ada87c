// Finds rows of the dashboard's lists and the actions in their menus.
import type { Locator, Page } from 'playwright-core';

/** The row of the table that has a cell with this text. */
export const rowOf = (page: Page, text: string): Locator =>
  page.getByRole('row').filter({ has: page.getByRole('cell', { name: text, exact: true }) });

/** Chooses an action in the menu of a row. */
export async function choose(page: Page, row: string, action: string): Promise<void> {
  await page.getByRole('button', { name: `Actions of ${row}` }).click();
  await page.getByRole('menuitem', { name: action, exact: true }).click();
}
