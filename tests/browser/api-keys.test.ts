// Tests the page of API keys: a new key is shown once, works, and is refused after it was revoked.
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import type { Page } from 'playwright-core';
import { createAccount, type TestAccount } from '../e2e/support/accounts.ts';
import { BASE_URL } from '../e2e/support/service.ts';
import { assertAccessible } from './support/accessibility.ts';
import { withPage } from './support/browser.ts';
import { choose, rowOf } from './support/lists.ts';
import { keepScreenshots } from './support/screenshots.ts';

const NO_KEYS = 'There are no API keys yet.';

describe('the page of API keys', () => {
  let account: TestAccount;
  before(async () => {
    account = await createAccount();
  });

  it('shows a new key once, and nowhere after its dialog is closed', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/api-keys');
      await page.getByRole('button', { name: 'New API key' }).click();
      const key = await makeKey(page, 'once');
      const dialog = page.getByRole('alertdialog');
      await page.keyboard.press('Escape');
      assert.equal(await dialog.locator('code').textContent(), key, 'Escape does not lose the key');
      assert.equal(await statusWith(key, 'GET'), 200, 'the key works as it is shown');
      await dialog.getByRole('button', { name: 'I have the key' }).click();
      await dialog.waitFor({ state: 'detached' });
      await rowOf(page, 'once').waitFor();
      await assertGone(page, key);

      await page.getByRole('link', { name: 'Volumes' }).click();
      await page.getByRole('heading', { name: 'Volumes' }).waitFor();
      await page.goBack();
      await rowOf(page, 'once').waitFor();
      await assertGone(page, key);
      await page.reload();
      await rowOf(page, 'once').waitFor();
      await assertGone(page, key);
    });
  });

  it('shows a key whose form the person tried to leave while it was made', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/api-keys?new=true');
      const { promise: released, resolve: release } = Promise.withResolvers<void>();
      await page.route('**/v1/api-keys', async (route) => {
        if (route.request().method() === 'POST') await released;
        await route.continue();
      });
      const form = page.getByRole('dialog', { name: 'New API key' });
      const palette = page.getByRole('combobox', { name: 'Page or machine' });
      await form.getByLabel('Name').fill('slow');
      await form.getByRole('button', { name: 'Create key' }).click();
      await form.locator('button[aria-busy=true]').waitFor();
      await page.keyboard.press('Escape');
      await form.getByRole('button', { name: 'Cancel' }).click();
      await page.keyboard.press('Control+k');
      release();
      const dialog = page.getByRole('alertdialog');
      await dialog.getByText(/^sbr_/).waitFor();
      await page.keyboard.press('Control+k');
      await dialog.getByRole('button', { name: 'I have the key' }).click();
      await rowOf(page, 'slow').waitFor();
      assert.equal(await palette.count(), 0);
    });
  });

  it('keeps the list, and says why it is old, while it cannot be read again', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/api-keys');
      await rowOf(page, 'once').waitFor();
      await page.route('**/v1/api-keys', (route) =>
        route.fulfill({ status: 404, json: { code: 'not_found', detail: 'Not here now.' } }),
      );
      const line = page.getByRole('alert').filter({ hasText: 'Cannot refresh API keys: Not here now.' });
      await line.waitFor();
      await rowOf(page, 'once').waitFor();
      await page.unroute('**/v1/api-keys');
      await line.waitFor({ state: 'detached' });
    });
  });

  it('makes a key that can only read, and a revoked key is refused', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/api-keys?new=true');
      await page.getByLabel('Scope').selectOption({ label: 'read only' });
      const key = await makeKey(page, 'reader');
      await page.getByRole('button', { name: 'I have the key' }).click();
      await rowOf(page, 'reader').getByText('read only').waitFor();
      assert.equal(await statusWith(key, 'GET'), 200);
      assert.equal(await statusWith(key, 'POST'), 403);

      await choose(page, 'reader', 'Revoke…');
      const question = page.getByRole('alertdialog');
      await question.getByText(key.slice(0, 12)).waitFor();
      await question.getByRole('button', { name: 'Revoke key' }).click();
      await rowOf(page, 'reader').waitFor({ state: 'detached' });
      assert.equal(await statusWith(key, 'GET'), 401);
    });
  });

  it('keeps the form open with the reason when a key is refused', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/api-keys?new=true');
      const form = page.getByRole('dialog', { name: 'New API key' });
      await page.route('**/v1/api-keys', (route) =>
        route.request().method() === 'POST'
          ? route.fulfill({ status: 409, json: { code: 'conflict', detail: 'An account has at most 100 keys.' } })
          : route.continue(),
      );
      await form.getByLabel('Name').fill('one too many');
      await form.getByRole('button', { name: 'Create key' }).click();
      await form.getByRole('alert').getByText('An account has at most 100 keys.').waitFor();
      assert.equal(await form.getByLabel('Name').inputValue(), 'one too many');
    });
  });

  it('shows used, expired and lasting keys, and passes axe', async () => {
    await withPage({ account }, async (page, { request }) => {
      const end = new Date(Date.now() + 2_000).toISOString();
      const headers = { origin: new URL(BASE_URL).origin };
      const data = { name: 'a key with <b>a long name</b> that needs more room', scope: 'full', expires_at: end };
      const made = await request.post('/v1/api-keys', { headers, data });
      assert.equal(made.status(), 201, await made.text());
      await page.goto('/api-keys');
      await page.getByText('expired', { exact: true }).waitFor();
    });
    await keepScreenshots('api-keys', {
      account,
      path: '/api-keys',
      ready: (page) => page.getByText('expired', { exact: true }).waitFor(),
      check: assertAccessible,
    });
    await keepScreenshots('api-keys-new', {
      account,
      path: '/api-keys?new=true',
      ready: (page) => makeKey(page, 'shown'),
      check: assertAccessible,
    });
  });

  it('explains an empty list with commands to run, and passes axe', async () => {
    const other = await createAccount();
    await withPage({ account: other }, async (page) => {
      await page.goto('/api-keys');
      await page.getByRole('button', { name: 'Actions of ' }).click();
      await page.getByRole('menuitem', { name: 'Revoke…' }).click();
      await page.getByRole('button', { name: 'Revoke key' }).click();
      await page.getByText(NO_KEYS).waitFor();
    });
    await keepScreenshots('api-keys-empty', {
      account: other,
      path: '/api-keys',
      ready: (page) => page.getByText(NO_KEYS).waitFor(),
      check: assertAccessible,
    });
  });
});

/** Sends the open form, and returns the key that the page shows. */
async function makeKey(page: Page, name: string): Promise<string> {
  const form = page.getByRole('dialog', { name: 'New API key' });
  await form.getByLabel('Name').fill(name);
  await form.getByRole('button', { name: 'Create key' }).click();
  const key = await page.getByRole('alertdialog').locator('code').textContent();
  assert.match(key ?? '', /^sbr_\w{20,}$/);
  return key ?? '';
}

/** Fails when the key is in the document, in the URL or in the browser's storage. */
async function assertGone(page: Page, key: string): Promise<void> {
  const kept = await page.evaluate(() =>
    [
      document.documentElement.outerHTML,
      ...[...document.querySelectorAll('input')].map(({ value }) => value),
      JSON.stringify([{ ...localStorage }, { ...sessionStorage }, history.state]),
      location.href,
      document.cookie,
    ].join('\n'),
  );
  assert.ok(kept.includes('once'), 'the page was read');
  assert.ok(!kept.includes(key), 'the key is still there');
}

/** The status of a request with the key: a list of machines, or a new volume. */
async function statusWith(key: string, method: 'GET' | 'POST'): Promise<number> {
  const response = await fetch(`${BASE_URL}${method === 'GET' ? '/v1/machines' : '/v1/volumes'}`, {
    method,
    headers: { authorization: `Bearer ${key}`, ...(method === 'GET' ? {} : { 'content-type': 'application/json' }) },
    ...(method === 'GET' ? {} : { body: JSON.stringify({ size_gb: 5 }) }),
  });
  await response.body?.cancel();
  return response.status;
}
