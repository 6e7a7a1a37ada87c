// Tests the sessions of the dashboard in a browser: signing in and out, sessions that end elsewhere, and new passwords.
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import type { BrowserContext, Page } from 'playwright-core';
import { createAccount, type TestAccount } from '../e2e/support/accounts.ts';
import { BASE_URL } from '../e2e/support/service.ts';
import { assertAccessible } from './support/accessibility.ts';
import { withPage } from './support/browser.ts';
import { waitForHeading } from './support/headings.ts';
import { keepScreenshots } from './support/screenshots.ts';
import { signIn } from './support/sign-in.ts';

let account: TestAccount;
let other: TestAccount;
/** The account of tests that sign in often, because the service limits the sign-ins of an e-mail address. */
let visitor: TestAccount;
before(async () => {
  [account, other, visitor] = await Promise.all([createAccount(), createAccount(), createAccount()]);
});

const isAt = (path: string) => (url: URL) => url.href.slice(url.origin.length) === path;
const isAtSignIn = (url: URL) => url.pathname === '/sign-in';

/** What scripts and people can read in the page. */
const everythingIn = (page: Page): Promise<string> =>
  page.evaluate(() =>
    [
      JSON.stringify(localStorage),
      JSON.stringify(sessionStorage),
      document.cookie,
      location.href,
      document.documentElement.outerHTML,
    ].join('\n'),
  );

/** Ends the session as another browser would: the cookie of this one stays. */
async function endElsewhere(context: BrowserContext): Promise<void> {
  const cookies = await context.cookies();
  const cookie = cookies.map(({ name, value }) => `${name}=${value}`).join('; ');
  const response = await fetch(`${BASE_URL}/v1/auth/sign-out`, {
    method: 'POST',
    headers: { cookie, origin: new URL(BASE_URL).origin },
  });
  assert.ok(response.ok, `sign-out answered ${response.status}`);
}

describe('the sign-in', () => {
  it('comes before a page that needs a session, and leads back to it with its query and fragment', async () => {
    await withPage({}, async (page) => {
      await page.goto('/activity?category=machine#bottom');
      await page.waitForURL(isAtSignIn);
      await signIn(page, account);
      await page.waitForURL(isAt('/activity?category=machine#bottom'));
      await waitForHeading(page, 'Activity');
      assert.equal(await page.getByLabel('Category').inputValue(), 'machine');
      assert.equal(await page.title(), 'Activity · Sandbar');
    });
  });

  it('leads only to pages of the dashboard', async () => {
    for (const to of ['//evil.example/x', '/\\evil.example', 'https://evil.example', 'javascript:alert(1)', '']) {
      await withPage({}, async (page) => {
        await page.goto(`/sign-in?to=${encodeURIComponent(to)}`);
        await signIn(page, visitor);
        await page.waitForURL(isAt('/machines'));
        await waitForHeading(page, 'Machines');
      });
    }
  });

  it('says that a password is wrong, and leaves the form ready for another try', async () => {
    await withPage({}, async (page) => {
      await page.goto('/sign-in');
      await signIn(page, { ...account, password: 'not the password' });
      const alert = page.getByRole('alert').filter({ hasText: 'The email address or the password is not right.' });
      await alert.waitFor();
      assert.equal(await page.getByLabel('E-mail').inputValue(), account.email);
      assert.equal(await page.getByLabel('Password').inputValue(), '');
      assert.equal(await page.getByLabel('Password').evaluate((input) => input === document.activeElement), true);
      await signIn(page, account);
      await waitForHeading(page, 'Machines');
    });
  });

  it('leaves no secret in the storage, the URL or the document', async () => {
    await withPage({}, async (page, context) => {
      await page.goto('/');
      await signIn(page, account);
      await waitForHeading(page, 'Machines');
      const kept = await everythingIn(page);
      assert.ok(!kept.includes(account.password), 'the password');
      assert.doesNotMatch(kept, /sbr_/, 'an API key');
      const cookies = await context.cookies();
      assert.ok(cookies.length > 0);
      for (const { name, value, httpOnly, sameSite } of cookies) {
        assert.deepEqual([httpOnly, sameSite], [true, 'Lax'], name);
        assert.ok(!kept.includes(value), `the cookie ${name}`);
      }
      await page.goBack();
      assert.doesNotMatch(page.url(), /sign-in/, 'Back skips the sign-in, which is done');
    });
  });

  it('passes axe in both themes and widths', async () => {
    await keepScreenshots('sign-in', {
      path: '/sign-in',
      ready: (page) => page.getByRole('button', { name: 'Sign in' }).waitFor(),
      check: assertAccessible,
    });
  });
});

describe('the end of a session', () => {
  it('by signing out leaves nothing of the account, also not behind Back', async () => {
    await withPage({ account }, async (page, context) => {
      await page.goto('/machines');
      await page.getByText(account.email).waitFor();
      await page.getByRole('link', { name: 'Account', exact: true }).click();
      await waitForHeading(page, 'Account');
      await page.evaluate(() => sessionStorage.setItem('sandbar.terminals.x', 'kept'));
      await page.getByRole('button', { name: 'Sign out' }).click();
      await page.waitForURL(isAt('/sign-in'));
      await page.getByRole('button', { name: 'Sign in' }).waitFor();
      const assertNothing = async (when: string) => {
        const kept = await everythingIn(page);
        assert.ok(!kept.includes(account.email), `the address of the account ${when}`);
        assert.doesNotMatch(kept, /sandbar\.terminals/, when);
      };
      await assertNothing('after signing out');
      assert.equal((await context.request.get('/v1/account')).status(), 401);
      await page.goBack();
      await page.waitForURL(isAtSignIn);
      await page.getByRole('button', { name: 'Sign in' }).waitFor();
      await assertNothing('after Back');
    });
  });

  it('shows nothing of the account when the browser brings back a page that it kept in memory', async () => {
    await withPage({ account }, async (page, context) => {
      await page.goto('/account');
      await page.getByText(account.email).first().waitFor();
      await context.clearCookies();
      // Chromium keeps no pages in memory while it is controlled by a test, so the test sends the event.
      await page.evaluate(() => dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true })));
      await page.waitForURL(isAtSignIn);
      await page.getByRole('button', { name: 'Sign in' }).waitFor();
      assert.ok(!(await everythingIn(page)).includes(account.email));
    });
  });

  it('elsewhere leads to the sign-in, and from there back to the page', async () => {
    await withPage({ account }, async (page, context) => {
      await page.goto('/machines?q=wor#x');
      await waitForHeading(page, 'Machines');
      await endElsewhere(context);
      await page.waitForURL(isAtSignIn);
      await signIn(page, account);
      await page.waitForURL(isAt('/machines?q=wor#x'));
      await page.getByText(account.email).waitFor();
    });
  });

  it('shows nothing of it to the account that signs in next in the same tab', async () => {
    await withPage({ account }, async (page, context) => {
      await page.goto('/machines');
      await page.getByText(account.email).waitFor();
      await page.evaluate(() => sessionStorage.setItem('sandbar.terminals.x', 'kept'));
      await endElsewhere(context);
      await page.waitForURL(isAtSignIn);
      await signIn(page, other);
      await page.getByText(other.email).waitFor();
      const kept = await everythingIn(page);
      assert.ok(!kept.includes(account.email));
      assert.doesNotMatch(kept, /sandbar\.terminals/);
    });
  });
});

describe('a forgotten password', () => {
  it('is asked for from the sign-in page, which says when the service sends no mail', async () => {
    await withPage({}, async (page) => {
      await page.goto('/sign-in');
      await page.getByRole('link', { name: 'Forgot your password?' }).click();
      await waitForHeading(page, 'Forgot your password?');
      await page.getByLabel('E-mail').fill(other.email);
      await page.getByRole('button', { name: 'Send the link' }).click();
      await page.getByText('This service sends no mail. Ask its operator for a new password').waitFor();
    });
  });

  it('is refused with a link that is not valid, whose token the browser never sends in a URL', async () => {
    await withPage({}, async (page, context) => {
      const asked: string[] = [];
      context.on('request', (request) => void asked.push(request.url(), request.headers().referer ?? ''));
      await page.goto('/reset-password#token=not-a-token');
      await page.getByRole('textbox', { name: 'New password' }).fill('a password that is long');
      await page.getByRole('button', { name: 'Set the password' }).click();
      await page.getByRole('link', { name: 'Ask for another link' }).click();
      await waitForHeading(page, 'Forgot your password?');
      // Playwright shows the fragment of the document's own URL, which browsers do not send.
      assert.ok(!asked.some((url) => url.split('#')[0]?.includes('not-a-token')), asked.join('\n'));
    });
  });

  it('is set once with a valid link, and the token disappears from the URL and the history', async () => {
    await withPage({}, async (page) => {
      // This service sends no mail, so no valid link exists: the answer of the API is made up.
      const sent = new Promise<unknown>((resolve) => {
        void page.route('**/v1/auth/reset-password', async (route) => {
          resolve(route.request().postDataJSON());
          await route.fulfill({ status: 204 });
        });
      });
      await page.goto('/sign-in');
      await page.goto('/reset-password#token=from-the-mail');
      await page.getByRole('textbox', { name: 'New password' }).fill('a password that is long');
      await page.getByRole('button', { name: 'Set the password' }).click();
      await waitForHeading(page, 'Your new password is set');
      assert.deepEqual(await sent, { token: 'from-the-mail', new_password: 'a password that is long' });
      await page.waitForURL(isAt('/reset-password'));
      await page.getByRole('link', { name: 'Back to the sign-in' }).click();
      await page.getByRole('button', { name: 'Sign in' }).waitFor();
      await page.goBack();
      assert.doesNotMatch(page.url(), /from-the-mail/);
    });
  });

  it('has a page that passes axe', async () => {
    await keepScreenshots('reset-password', {
      path: '/reset-password#token=x',
      ready: (page) => page.getByRole('button', { name: 'Set the password' }).waitFor(),
      check: assertAccessible,
    });
  });
});
