// Tests what the dashboard shows while the service does not answer, while a script of a page is missing, and after a page
// failed.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { homePaths } from '@sandbar/contract/home.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Page, Route } from 'playwright-core';
import { createAccount, destroyMachines, type TestAccount } from '../../e2e/support/accounts.ts';
import { call, HOME, pidOf, until } from '../../e2e/support/service.ts';
import { assertAccessible } from '../support/accessibility.ts';
import { withPage } from '../support/browser.ts';
import { waitForHeading } from '../support/headings.ts';
import { keepScreenshots } from '../support/screenshots.ts';

const LINE = 'The service does not answer. The page shows its last answers, and asks again.';
const PID_FILE = homePaths(HOME).pidFile('control-plane');
/** What the browser's console says about requests without an answer. */
const NO_ANSWER = ['Failed to load resource: net::ERR_', 'status of 502', 'status of 503', 'WebSocket connection to'];

let account: TestAccount;
let machine: Machine;
before(async () => {
  account = await createAccount();
  machine = await account.createMachine({ name: 'worker' });
});
after(() => destroyMachines(account));

const line = (page: Page) => page.getByRole('status').filter({ hasText: LINE });
const link = (page: Page, name: string) =>
  page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name, exact: true });
/** A mark that a new document does not have. */
const mark = (page: Page) => page.evaluate(() => void Object.assign(globalThis, { marked: true }));
const isMarked = (page: Page) => page.evaluate(() => (globalThis as { marked?: boolean }).marked === true);

/** Kills the control plane, and every one that the supervisor starts, until `work` is done. */
async function duringOutage(work: () => Promise<void>): Promise<void> {
  const isOver = new AbortController();
  const killing = killEach(isOver.signal);
  try {
    await work();
  } finally {
    isOver.abort();
    await killing;
    await until('the service answers', async () => (await call('GET', '/v1/machines')).status === 200);
  }
}

async function killEach(isOver: AbortSignal): Promise<void> {
  let killed = 0;
  while (!isOver.aborted) {
    // Between two control planes there is no pid file.
    const pid = existsSync(PID_FILE) ? pidOf('control-plane') : killed;
    if (pid !== killed) process.kill(pid, 'SIGKILL');
    killed = pid;
    await setTimeout(200);
  }
}

describe('an outage', () => {
  it('shows a line above an open page, which keeps its rows, loads other pages later, and recovers by itself', async () => {
    await withPage({ account, allowed: NO_ANSWER }, async (page) => {
      await page.goto('/machines');
      const row = page.getByRole('row').filter({ hasText: 'worker' });
      await row.waitFor();
      await mark(page);
      await duringOutage(async () => {
        await line(page).waitFor();
        assert.equal(await row.count(), 1, 'the rows stay');
        // The script of this page was never loaded.
        await link(page, 'Images').press('Enter');
        await page.waitForURL(/\/images$/);
        assert.equal(await page.getByRole('heading', { name: 'Images', exact: true }).count(), 0);
      });
      await waitForHeading(page, 'Images');
      await line(page).waitFor({ state: 'detached' });
      await link(page, 'Machines').click();
      await row.waitFor();
      assert.equal(await isMarked(page), true, 'without loading the page again');
      const later = await account.call<Machine>('PATCH', `/v1/machines/${machine.id}`, { name: 'worker-after' });
      await page.getByRole('row').filter({ hasText: later.name }).waitFor();
    });
  });

  it('shows the id of the request while a page cannot load, and the page then loads by itself', async () => {
    const ready = async (page: Page) => {
      await waitForHeading(page, 'Waiting for the service');
      await page.getByText('The database does not answer now. Retry later.').waitFor();
      await page.getByText('request-of-the-test').waitFor();
    };
    await withPage({ account, allowed: [...NO_ANSWER, 'ApiProblem'] }, async (page) => {
      await page.route('**/v1/account', refuse);
      await page.goto('/volumes');
      await ready(page);
      assert.equal(await page.title(), 'Failed · Sandbar');
      await page.unroute('**/v1/account');
      await waitForHeading(page, 'Volumes');
    });
  });

  it('passes axe in both themes and widths', async () => {
    await keepScreenshots('outage-line', {
      account,
      path: '/machines',
      allowed: NO_ANSWER,
      ready: async (page) => {
        await page.getByRole('row').nth(1).waitFor();
        await page.route('**/v1/**', (route) => route.abort());
        await line(page).waitFor();
      },
      check: assertAccessible,
    });
  });
});

const refuse = (route: Route) =>
  route.fulfill({
    status: 503,
    headers: { 'x-request-id': 'request-of-the-test' },
    json: { code: 'database_unavailable', detail: 'The database does not answer now. Retry later.' },
  });

const notFound = (route: Route) => route.fulfill({ status: 404, json: { code: 'not_found', detail: 'x' } });

describe('a script that is gone because the service was updated', () => {
  it('makes the browser load the new dashboard, at the page that was asked for', async () => {
    await withPage({ account, allowed: ['dynamically imported module'] }, async (page) => {
      await page.goto('/volumes');
      await waitForHeading(page, 'Volumes');
      await mark(page);
      await page.route('**/assets/images-page-*.js', notFound, { times: 2 });
      await link(page, 'Images').press('Enter');
      await waitForHeading(page, 'Images');
      assert.equal(new URL(page.url()).pathname, '/images');
      assert.equal(await isMarked(page), false, 'the page was loaded again');
    });
  });

  it('does not do so when it is only announced by the pointer', async () => {
    await withPage({ account }, async (page) => {
      await page.goto('/volumes');
      await waitForHeading(page, 'Volumes');
      await mark(page);
      const refused = page.waitForResponse('**/assets/images-page-*.js');
      await page.route('**/assets/images-page-*.js', notFound);
      await link(page, 'Images').hover();
      await refused;
      await page.getByRole('button', { name: 'New volume' }).click();
      await page.getByRole('dialog').waitFor();
      assert.equal(await isMarked(page), true);
    });
  });

  it('is explained when it stays away, for a page and for a part of one, with a button to load again', async () => {
    for (const [from, name, script] of [
      ['/volumes', 'Images', '**/assets/images-page-*.js'],
      [`/machines/${machine.id}`, 'Ports', '**/assets/ports-tab-*.js'],
    ] as const) {
      await withPage({ account, allowed: ['dynamically imported module'] }, async (page) => {
        await page.goto(from);
        await page.route(script, notFound);
        await page.getByRole('link', { name, exact: true }).press('Enter');
        await waitForHeading(page, 'The dashboard was updated');
        await assertAccessible(page);
        await link(page, 'Volumes').waitFor();
        await page.unroute(script);
        await page.getByRole('button', { name: 'Load the page again' }).click();
        await page.getByRole('heading', { name: 'The dashboard was updated' }).waitFor({ state: 'detached' });
      });
    }
  });
});

describe('a page that fails', () => {
  const breakPage = (page: Page) =>
    page.route('**/v1/volumes*', (route) => route.fulfill({ json: { volumes: [null] } }));

  it('says so inside the frame, and the other pages work', async () => {
    await withPage({ account, allowed: ['TypeError'] }, async (page) => {
      await breakPage(page);
      await page.goto('/volumes');
      await waitForHeading(page, 'This page failed');
      assert.equal(await page.getByRole('main').count(), 1);
      await link(page, 'Images').click();
      await waitForHeading(page, 'Images');
      await page.unroute('**/v1/volumes*');
      await link(page, 'Volumes').click();
      await waitForHeading(page, 'Volumes');
    });
  });

  it('passes axe in both themes and widths', async () => {
    await keepScreenshots('failed-page', {
      account,
      path: '/images',
      allowed: ['TypeError'],
      ready: async (page) => {
        await breakPage(page);
        await page.goto('/volumes');
        await waitForHeading(page, 'This page failed');
      },
      check: assertAccessible,
    });
  });
});
