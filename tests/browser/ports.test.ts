// Tests the ports of a machine in a browser, and what a page that a machine serves can reach: nothing of the dashboard.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { PortList } from '@sandbar/contract/port.ts';
import type { Page } from 'playwright-core';
import { createAccount, destroyMachines, type TestAccount } from '../e2e/support/accounts.ts';
import { hostOf, visit } from '../e2e/support/ports.ts';
import { BASE_URL, until } from '../e2e/support/service.ts';
import { assertAccessible } from './support/accessibility.ts';
import { NARROW, type Window, withPage } from './support/browser.ts';
import { keepScreenshots } from './support/screenshots.ts';

const PORT = 8000;
/** Answers every request with a page that shows the request's header fields. */
const PROGRAM = `
import html, http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = ("<title>of the machine</title><pre>" + html.escape(str(self.headers)) + "</pre>").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET
http.server.ThreadingHTTPServer(("0.0.0.0", ${PORT}), Handler).serve_forever()
`;

type Asked = { method?: string; mode?: RequestMode; credentials: RequestCredentials; body?: string };

describe('the ports of a machine', () => {
  let account: TestAccount;
  let machine: Machine;
  let empty: Machine;
  before(async () => {
    account = await createAccount();
    [machine, empty] = await Promise.all([account.createMachine({ name: 'web' }), account.createMachine()]);
    const { call } = account;
    await call('POST', `/v1/machines/${machine.id}/execs`, { argv: ['python3', '-c', PROGRAM] });
    await until('the program listens', async () => {
      const { ports } = await call<PortList>('GET', `/v1/machines/${machine.id}/ports`);
      return ports.some(({ port }) => port === PORT);
    });
  });
  after(() => destroyMachines(account));

  /** Opens the tab of a machine. The pages of machines are at other origins, which `withPage` would count as an error. */
  const inTab = ({ id }: Machine, work: (page: Page) => Promise<void>, options: Window = {}): Promise<void> =>
    withPage({ account, allowed: [`-${id}.localhost`, 'net::ERR_FAILED'], ...options }, async (page) => {
      await page.goto(`/machines/${id}?tab=ports`);
      await page.getByLabel('A port that is not listed').waitFor();
      await work(page);
    });
  const rowOf = (page: Page, port: number) => page.getByRole('row').filter({ hasText: String(port) });
  const open = async (page: Page): Promise<Page> => {
    const opened = page.waitForEvent('popup');
    await rowOf(page, PORT).getByRole('button', { name: 'Open' }).click();
    const preview = await opened;
    await preview.getByText(`Host: ${hostOf(machine.id, PORT)}`).waitFor();
    return preview;
  };

  it('opens a private port in a new tab, and the machine gets no cookie of the service', async () => {
    await inTab(machine, async (page) => {
      const preview = await open(page);
      assert.equal(new URL(preview.url()).host, hostOf(machine.id, PORT));
      assert.doesNotMatch(preview.url(), /token/);
      await preview.evaluate(() => cookieStore.set({ name: 'own', value: '1', sameSite: 'lax' }));
      await preview.reload();
      const seen = (await preview.locator('pre').textContent()) ?? '';
      assert.match(seen, /^Cookie: own=1$/m);
      assert.doesNotMatch(seen, /sandbar_(?!token)|sbr_|sbp_/);
      assert.doesNotMatch(seen, /^(Authorization|X-Sandbar-Key):/im);
    });
  });

  it('a page of a machine reads neither the API nor the dashboard, and has no session', async () => {
    await inTab(machine, async (page) => {
      const preview = await open(page);
      assert.equal(await preview.evaluate(() => window.opener), null, 'the window that opened it');
      assert.equal(await preview.evaluate(() => document.cookie), '');

      const read = (url: string, options: Asked) =>
        preview.evaluate(
          async ([to, how]) => {
            const answer = await fetch(to, how).catch((error: Error) => error.name);
            return typeof answer === 'string' ? answer : `${answer.type} ${answer.status} ${await answer.text()}`;
          },
          [url, options] as const,
        );
      for (const path of ['/v1/account', '/v1/machines', '/']) {
        assert.equal(await read(`${BASE_URL}${path}`, { credentials: 'include' }), 'TypeError', `reads ${path}`);
      }
      const sent = preview.waitForRequest(`${BASE_URL}/v1/machines`);
      const blind = { method: 'POST', mode: 'no-cors', credentials: 'include', body: '{}' } as const;
      assert.equal(await read(`${BASE_URL}/v1/machines`, blind), 'opaque 0 ');
      assert.equal((await (await sent).allHeaders()).cookie, undefined, 'the session of the dashboard');
      const { machines } = await account.call<{ machines: Machine[] }>('GET', '/v1/machines');
      assert.equal(machines.length, 2, 'the page of the machine made a machine');
    });
  });

  it('a page of a machine can neither frame the dashboard nor keep hold of its window', async () => {
    const refusals = ['frame-ancestors', 'Refused to frame', 'Framing'];
    await inTab(
      machine,
      async (page) => {
        const preview = await open(page);
        await preview.evaluate(async (url) => {
          const frame = document.createElement('iframe');
          frame.src = url;
          const loaded = new Promise((resolve) => frame.addEventListener('load', resolve));
          document.body.append(frame);
          await loaded;
        }, `${BASE_URL}/machines`);
        await until('the frame shows an error', () => preview.frames()[1]?.url().startsWith('chrome-error:') === true);
        const opened = preview.context().waitForEvent('page');
        const handle = await preview.evaluateHandle((url) => window.open(url), `${BASE_URL}/machines`);
        const dashboard = await opened;
        await dashboard.getByRole('heading', { name: 'Machines' }).waitFor();
        await until('the window is out of reach', () => handle.evaluate((other) => other?.closed === true));
        assert.equal(await dashboard.evaluate(() => window.opener), null);
      },
      { allowed: [`-${machine.id}.localhost`, ...refusals] },
    );
  });

  it('makes a port public after a question, and private again', async () => {
    await inTab(machine, async (page) => {
      const url = `http://${hostOf(machine.id, PORT)}/`;
      const statusOf = async () => (await visit(machine.id, PORT, { headers: { 'x-sandbar-key': [] } })).status;
      assert.equal(await statusOf(), 401);
      const row = rowOf(page, PORT);
      await row.getByRole('button', { name: 'Make public…' }).click();
      const question = page.getByRole('alertdialog', { name: `Make port ${PORT} public?` });
      await question.getByText(url).waitFor();
      await question.getByRole('button', { name: 'Make it public' }).click();
      await row.getByText('public', { exact: true }).waitFor();
      assert.equal(await statusOf(), 200);
      await row.getByRole('button', { name: 'Make private' }).click();
      await row.getByText('private', { exact: true }).waitFor();
      assert.equal(await statusOf(), 401);
    });
  });

  it('copies a link that works without a session, also when the browser has no clipboard interface', async () => {
    for (const hasClipboard of [true, false]) {
      await inTab(machine, async (page) => {
        await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
        if (!hasClipboard)
          await page.evaluate(() => Object.defineProperty(navigator, 'clipboard', { value: undefined }));
        await rowOf(page, PORT).getByRole('button', { name: 'Copy link' }).click();
        await page.getByText(`The link to port ${PORT} was copied.`).waitFor();
        const reader = await page.context().newPage();
        await reader.goto('/machines');
        const link = await reader.evaluate(() => navigator.clipboard.readText());
        await withPage({ allowed: [`-${machine.id}.localhost`] }, async (other) => {
          await other.goto(link);
          await other.getByText(`Host: ${hostOf(machine.id, PORT)}`).waitFor();
        });
      });
    }
  });

  it('selects a link that the browser does not copy', async () => {
    await inTab(machine, async (page) => {
      await page.evaluate(() => {
        Object.defineProperty(navigator, 'clipboard', { value: undefined });
        document.execCommand = () => false;
      });
      await rowOf(page, PORT).getByRole('button', { name: 'Copy link' }).click();
      await page.getByText('The browser does not allow copying here.').waitFor();
      const selected = await page.evaluate(() => String(getSelection()));
      assert.ok(selected.startsWith(`http://${hostOf(machine.id, PORT)}/?sandbar_token=`), selected);
    });
  });

  it('without a program shows how to start one, and still gives out a port', async () => {
    const allowed = [`-${empty.id}.localhost`, 'status of 502'];
    await inTab(
      empty,
      async (page) => {
        const sample = page.getByRole('tabpanel');
        const [code, copy] = await Promise.all([
          sample.boundingBox(),
          page.getByRole('button', { name: 'Copy', exact: true }).boundingBox(),
        ]);
        assert.ok(code && copy && copy.y + copy.height <= code.y, 'the button covers the sample');
        const other = page.getByRole('region', { name: 'Another port' });
        const openButton = other.getByRole('button', { name: 'Open' });
        assert.equal(await openButton.getAttribute('aria-disabled'), 'true');
        await page.getByText('Give a port, 1 to 65535.').first().waitFor({ state: 'attached' });
        await page.getByLabel('A port that is not listed').fill('9000');
        const opened = page.waitForEvent('popup');
        await openButton.click();
        await (await opened).getByText('port 9000').first().waitFor();
        await other.getByRole('button', { name: 'Make public…' }).click();
        await page.getByRole('button', { name: 'Make it public' }).click();
        await page.getByText('Port 9000 is public.').waitFor();
        await other.getByRole('button', { name: 'Make private' }).click();
        await page.getByText('Port 9000 is private.').waitFor();
      },
      { size: NARROW, allowed },
    );
  });

  it('passes axe in both themes and widths', async () => {
    const shown = { account, ready: (page: Page) => page.getByLabel('A port that is not listed').waitFor() };
    await keepScreenshots('ports', { ...shown, path: `/machines/${machine.id}?tab=ports`, check: assertAccessible });
    await keepScreenshots('ports-empty', {
      ...shown,
      path: `/machines/${empty.id}?tab=ports`,
      check: assertAccessible,
    });
  });
});
