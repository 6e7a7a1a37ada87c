// Signs in through the form of the dashboard, as a person does.
import type { Page } from 'playwright-core';
import type { TestAccount } from '../../e2e/support/accounts.ts';

/** The page must show the sign-in form, or be on its way to it. */
export async function signIn(page: Page, { email, password }: Pick<TestAccount, 'email' | 'password'>): Promise<void> {
  await page.getByLabel('E-mail').fill(email);
  await page.getByLabel('Password').fill(password);
  await page.getByRole('button', { name: 'Sign in' }).click();
}
