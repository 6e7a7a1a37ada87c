// Finds out which page of the dashboard is shown.
import type { Page } from 'playwright-core';

/** Waits for a heading with exactly this text. */
export const waitForHeading = (page: Page, name: string): Promise<void> =>
  page.getByRole('heading', { name, exact: true }).waitFor();
