// Tests the page that approves logins of programs: a person enters the code, sees who asks, and chooses what the key of
// the program may do.
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import type { DeviceCode } from '@sandbar/contract/device-login.ts';
import type { Page } from 'playwright-core';
import { createAccount, type TestAccount } from '../e2e/support/accounts.ts';
import { BASE_URL } from '../e2e/support/service.ts';
import { assertAccessible } from './support/accessibility.ts';
import { withPage } from './support/browser.ts';
import { rowOf } from './support/lists.ts';
import { keepScreenshots } from './support/screenshots.ts';
import { signIn } from './support/sign-in.ts';
import { findDisorder } from './support/text-order.ts';

const QUESTION = 'Give this program an API key?';
const UNKNOWN = 'There is no login with this code.';

/** What the program sends and gets. */
async function post(path: string, body: object): Promise<{ status: number; json: Record<string, string> }> {
  for (;;) {
    const response = await fetch(`${BASE_URL}/v1/auth/device/${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    const json = (await response.json()) as Record<string, string>;
    if (response.status !== 429) return { status: response.status, json };
    await setTimeout(Number(response.headers.get('retry-after')) * 1000);
  }
}

async function begin(name: string): Promise<DeviceCode> {
  const { status, json } = await post('code', { name });
  assert.equal(status, 200);
  return json as unknown as DeviceCode;
}

const poll = ({ device_code }: DeviceCode) => post('token', { device_code });
const pathOf = ({ user_code }: DeviceCode): string => `/device?user_code=${user_code}`;
const question = (page: Page) => page.getByRole('form', { name: QUESTION });
const ending = (page: Page, title: string) => page.getByRole('status').filter({ hasText: title });

const proceed = (page: Page) => page.getByRole('button', { name: 'Continue' }).click();

/** Opens the link that the program shows, and submits the code in it. */
async function follow(page: Page, login: DeviceCode): Promise<void> {
  await page.goto(pathOf(login));
  await proceed(page);
}

async function enter(page: Page, code: string): Promise<void> {
  await page.getByLabel('Code').fill(code);
  await proceed(page);
}

describe('the page that approves logins of programs', () => {
  let account: TestAccount;
  before(async () => {
    account = await createAccount();
  });

  it('comes after the sign-in, and gives the program a key of the chosen scope, which is in the list', async () => {
    const login = await begin('build server');
    await withPage({}, async (page) => {
      await page.goto(login.verification_uri_complete.replace(/^https?:\/\/[^/]+/, ''));
      await signIn(page, account);
      await proceed(page);
      const form = question(page);
      await form.getByText(login.user_code, { exact: true }).waitFor();
      await form.getByText('build server', { exact: true }).waitFor();
      await form.getByText('127.0.0.1', { exact: true }).waitFor();
      await form.getByText('Only approve a code that you asked for.').waitFor();
      await form.getByRole('button', { name: 'Approve' }).click();
      const isMissing = (radio: HTMLElement) => !(radio as HTMLInputElement).validity.valid;
      assert.ok(await form.getByLabel('read only').evaluate(isMissing), 'the person has to choose a scope');
      await form.getByLabel('read only').check();
      await form.getByRole('button', { name: 'Approve' }).click();
      await ending(page, 'The login is approved').waitFor();

      const { status, json } = await poll(login);
      assert.deepEqual([status, json.name, json.scope], [200, 'build server', 'read']);
      const use = await fetch(`${BASE_URL}/v1/machines`, { headers: { authorization: `Bearer ${json.key}` } });
      assert.equal(use.status, 200);
      await page.getByRole('status').getByRole('link', { name: 'API keys' }).click();
      await rowOf(page, 'build server').getByText('read only').waitFor();
    });
  });

  it('takes the code as it is typed, and says what is wrong with another', async () => {
    const login = await begin('laptop');
    await withPage({ account }, async (page) => {
      await page.goto('/device');
      await enter(page, 'not-a-code');
      await page.getByRole('alert').filter({ hasText: 'A code has eight letters' }).waitFor();
      await enter(page, 'bbbbbbbb');
      await page.getByRole('alert').filter({ hasText: UNKNOWN }).waitFor();
      await enter(page, ` ${login.user_code.toLowerCase().replace('-', '')} `);
      await question(page).getByText(login.user_code, { exact: true }).waitFor();
      await page.reload();
      await proceed(page);
      await question(page).getByLabel('read and change').check();
      await question(page).getByRole('button', { name: 'Deny' }).click();
      await ending(page, 'The login is denied').waitFor();
      assert.equal((await poll(login)).json.code, 'access_denied');

      await page.reload();
      await proceed(page);
      await page.getByRole('alert').filter({ hasText: 'This code was approved or denied already.' }).waitFor();
    });
  });

  it('sends the code of a link only when the person submits it', async () => {
    const login = await begin('link');
    await withPage({ account }, async (page) => {
      let lookups = 0;
      page.on('request', (request) => {
        if (request.url().endsWith('/device/lookup')) lookups++;
      });
      await page.goto(pathOf(login));
      await page.getByLabel('Code').waitFor();
      assert.equal(await page.getByLabel('Code').inputValue(), login.user_code);
      // A lookup of the first rendering would be sent before the second frame.
      await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
      assert.equal(lookups, 0);
      await proceed(page);
      await question(page).waitFor();
      assert.equal(lookups, 1);
    });
  });

  it('sends a wrong code once, and none after five', async () => {
    const other = await createAccount();
    await withPage({ account: other }, async (page) => {
      let lookups = 0;
      page.on('request', (request) => {
        if (request.url().endsWith('/device/lookup')) lookups++;
      });
      await page.goto('/device');
      for (const code of ['BBBB-BBBB', 'CCCC-CCCC', 'DDDD-DDDD', 'FFFF-FFFF', 'GGGG-GGGG']) {
        await enter(page, code);
        await page.waitForURL((url) => url.searchParams.get('user_code') === code);
        await page.getByRole('alert').filter({ hasText: UNKNOWN }).waitFor();
      }
      assert.equal(lookups, 5);
      await enter(page, (await begin('too late')).user_code);
      await page.getByRole('alert').filter({ hasText: 'This account entered 5 wrong codes.' }).waitFor();
    });
  });

  it('says that a code has expired, before and after the person has seen who asks', async () => {
    const login = await begin('slow');
    const expired = { status: 400, json: { code: 'expired_token', detail: 'This code has expired.' } };
    await withPage({ account }, async (page) => {
      await follow(page, login);
      await question(page).getByLabel('read only').check();
      await page.route('**/v1/auth/device/**', (route) => route.fulfill(expired));
      await question(page).getByRole('button', { name: 'Approve' }).click();
      await ending(page, 'This code has expired').waitFor();
      await page.reload();
      await proceed(page);
      await ending(page, 'This code has expired').waitFor();
      await page.getByRole('link', { name: 'Enter another code' }).click();
      assert.equal(await page.getByLabel('Code').inputValue(), '');
    });
  });

  it('keeps the question when the answer is refused or lost, and sends it again', async () => {
    const login = await begin('patient');
    await withPage({ account, allowed: ['Failed to load resource: net::ERR_FAILED'] }, async (page) => {
      await follow(page, login);
      await question(page).getByLabel('read and change').check();
      await page.route('**/v1/auth/device/approve', async (route) => {
        await route.fetch();
        await route.abort();
      });
      await question(page).getByRole('button', { name: 'Approve' }).click();
      await page.getByRole('alert').filter({ hasText: 'The service does not answer.' }).first().waitFor();
      await page.unroute('**/v1/auth/device/approve');
      await question(page).getByRole('button', { name: 'Approve' }).click();
      await ending(page, 'The login is approved').waitFor();
      assert.equal((await poll(login)).status, 200);
    });
  });

  it('shows the name of a computer as text, whatever is in it', async () => {
    const name = '<img src=x onerror="globalThis.isInjected=true">\u0007\u2069\u2069\u202Egnp.exe';
    await withPage({ account }, async (page) => {
      await follow(page, await begin(name));
      await question(page).getByText('\\u202Egnp.exe').waitFor();
      assert.deepEqual(await findDisorder(page, 'onerror'), []);
      assert.equal(await page.evaluate(() => 'isInjected' in globalThis), false);
    });
  });

  it('passes axe in all its states', async () => {
    const login = await begin('a computer with a name that is long enough for a second line on a phone');
    const shot = (name: string, path: string, ready: (page: Page) => Promise<unknown>) =>
      keepScreenshots(name, { account, path, ready, check: assertAccessible });
    await shot('device', '/device', (page) => page.getByLabel('Code').waitFor());
    await shot('device-question', pathOf(login), async (page) => {
      await proceed(page);
      await question(page).waitFor();
    });
    await shot('device-refused', '/device?user_code=AAAA', (page) => page.getByRole('alert').waitFor());
    await shot('device-approved', '/device', async (page) => {
      await follow(page, await begin('laptop'));
      await question(page).getByLabel('read only').check();
      await question(page).getByRole('button', { name: 'Approve' }).click();
      await ending(page, 'The login is approved').waitFor();
    });
  });
});
