// Finds rows of the dashboard's lists and the actions in their menus.
import type { Locator, Page } from 'playwright-core';

/** The row of the table that has a cell with this text. */
export const rowOf = (page: Page, text: string): Locator =>
  page.getByRole('row').filter({ has: page.getByRole('cell', { name: text, exact: true }) });

/** Opens the menu of a row. */
const openMenu = (page: Page, row: string): Promise<void> =>
  page.getByRole('button', { name: `Actions of ${row}` }).click();

/** Opens the menu of a row and returns an action in it, which need not be possible. */
export async function findAction(page: Page, row: string, action: string): Promise<Locator> {
  await openMenu(page, row);
  // An action that is not possible has the reason after its label.
  return page.getByRole('menuitem', { name: new RegExp(`^${action}`) });
}

/** Chooses an action in the menu of a row. */
export async function choose(page: Page, row: string, action: string): Promise<void> {
  await openMenu(page, row);
  await page.getByRole('menuitem', { name: action, exact: true }).click();
}
