// Tests the connection of a terminal: after a reload, after it is lost, after the end of the program or of the session,
// and which tickets are refused.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { request as requestHttp } from 'node:http';
import { after, before, describe, it } from 'node:test';
import type { TerminalList, TerminalSession } from '@sandbar/contract/terminal.ts';
import type { Page } from 'playwright-core';
import { createAccount, destroyMachines, type TestAccount } from '../../e2e/support/accounts.ts';
import { restart } from '../../e2e/support/host.ts';
import { BASE_URL, until } from '../../e2e/support/service.ts';
import { assertAccessible } from '../support/accessibility.ts';
import { withPage } from '../support/browser.ts';
import { keepScreenshots } from '../support/screenshots.ts';
import { signIn } from '../support/sign-in.ts';
import { TerminalView, terminalPath } from '../support/terminal-view.ts';

/** What the browser says about connections that a killed control plane cuts and refuses. */
const CUT = ['WebSocket connection to', 'net::ERR_', 'Failed to load resource'];

describe('the connection of a terminal', () => {
  let account: TestAccount;
  let machineId: string;
  before(async () => {
    account = await createAccount();
    machineId = (await account.createMachine({ name: 'worker' })).id;
  });
  after(() => destroyMachines(account));

  const path = (rest: string) => `/v1/machines/${machineId}/${rest}`;
  /** How many connections the terminals of the machine have. */
  const connections = async () => {
    const { terminals } = await account.call<TerminalList>('GET', path('terminals'));
    return terminals.reduce((sum, terminal) => sum + terminal.connections, 0);
  };

  it('is restored after a reload, to the same shell with its last text', async () => {
    await withPage({ account }, async (page) => {
      const view = await TerminalView.open(page, machineId);
      await view.run('KEPT=$RANDOM-$$; echo "before=$KEPT."');
      const [, kept] = await view.shows(/^before=(\d+-\d+)\.$/m);
      await page.reload();
      await view.shows(new RegExp(`^before=${kept}\\.$`, 'm'));
      await view.run('echo "after=$KEPT."');
      await view.shows(new RegExp(`^after=${kept}\\.$`, 'm'));
    });
  });

  it('is restored by itself after it was lost, and the page says so meanwhile', async () => {
    await withPage({ account, allowed: CUT }, async (page) => {
      const view = await TerminalView.open(page, machineId);
      await view.run('KEPT=$RANDOM-$$; (sleep 4; echo "mean""while") & echo "before=$KEPT."');
      const [, kept] = await view.shows(/^before=(\d+-\d+)\.$/m);
      const restarted = restart(['control-plane'], 'SIGKILL');
      await view.says('Not connected');
      await view.says('The page connects again by itself');
      await restarted;
      await view.says('Connected.');
      await view.run('echo "after=$KEPT."');
      await view.shows(new RegExp(`^after=${kept}\\.$`, 'm'));
      assert.equal((await view.text()).match(/^before=/gm)?.length, 1, 'no text is shown twice');
      await view.shows(/meanwhile/);
    });
  });

  it('ends with the exit code of the shell, and a button starts another shell', async () => {
    await withPage({ account }, async (page) => {
      const view = await TerminalView.open(page, machineId);
      await view.run('OLD=shell; exit 7');
      await view.says('The program ended with code 7.');
      await page.getByRole('button', { name: 'Restart' }).click();
      await view.says('Connected.');
      await view.run('echo "old=$OLD."');
      await view.shows(/^old=\.$/m);
    });
  });

  it('ends at sign-out, and nothing of the account stays in the page', async () => {
    await withPage({ account }, async (page) => {
      const view = await TerminalView.open(page, machineId);
      await view.openAnother();
      await view.run('echo "private""Text"');
      await view.shows(/^privateText$/m);
      assert.equal(await connections(), 2);
      await page.getByRole('button', { name: 'Sign out' }).click();
      await page.waitForURL(/\/sign-in/);
      await page.getByLabel('E-mail').waitFor();
      await until('the connections are closed', async () => (await connections()) === 0);
      const left = await page.evaluate(
        () => document.documentElement.outerHTML + JSON.stringify(sessionStorage) + document.adoptedStyleSheets.length,
      );
      assert.doesNotMatch(left, /private|xterm/);
      assert.match(left, /\{\}0$/, 'no stored terminal and no style sheet');
      const other = await createAccount();
      await signIn(page, other);
      await page.getByRole('heading', { name: 'Machines' }).waitFor();
      assert.equal(await connections(), 0);
    });
  });

  it('ends when the session ends elsewhere, and a sign-in opens a new terminal', async () => {
    await withPage({ account }, async (page, context) => {
      const view = await TerminalView.open(page, machineId);
      await view.run('echo "private""Text"');
      await view.shows(/^privateText$/m);
      await context.request.post('/v1/auth/sign-out', { headers: { origin: new URL(BASE_URL).origin } });
      await page.waitForURL(/\/sign-in/);
      assert.doesNotMatch(await page.content(), /private|xterm/);
      await signIn(page, account);
      await view.isReady();
      assert.doesNotMatch(await view.text(), /private/);
    });
  });

  it('is refused with a ticket that is used, invented, of another machine, or sent from another origin', async () => {
    const other = await account.createMachine();
    await withPage({ account }, async (page) => {
      await page.goto('/machines');
      const get = (id: string) => ticketOf(page, id);
      const spent = await get(machineId);
      assert.equal(await connect(path('terminal'), spent), 101);
      assert.equal(await connect(path('terminal'), spent), 401);
      assert.equal(await connect(path('terminal'), `sbt_${'A'.repeat(43)}`), 401);
      assert.equal(await connect(path('terminal'), await get(other.id)), 401);
      const foreign = await get(machineId);
      assert.equal(await connect(path('terminal'), foreign, 'https://evil.example'), 403);
      assert.equal(await connect(path('terminal'), foreign), 401, 'spent by the foreign page');
      assert.equal(await connect(path('terminal'), await get(machineId), new URL(BASE_URL).origin), 101);
    });
  });

  it('passes axe when it is lost and when it has ended', async () => {
    await keepScreenshots('terminal-cut', {
      account,
      path: terminalPath(machineId),
      ready: async (page) => {
        const view = new TerminalView(page);
        await view.isReady();
        await page.route('**/terminal-session', (route) => route.fulfill({ status: 409, json: CONFLICT }));
        await page.evaluate(() => dispatchEvent(new Event('online')));
        await view.says('The machine is being stopped.');
      },
      check: assertAccessible,
    });
    await keepScreenshots('terminal-ended', {
      account,
      path: terminalPath(machineId),
      ready: async (page) => {
        const view = new TerminalView(page);
        await view.isReady();
        await view.run('ls --color /; exit 3');
        await view.says('The program ended with code 3.');
      },
      check: assertAccessible,
    });
    // Otherwise each window would leave a shell in the machine.
    const { terminals } = await account.call<TerminalList>('GET', path('terminals'));
    await Promise.all(terminals.map(({ id }) => account.call('DELETE', path(`terminals/${id}`))));
  });
});

/** An answer after which the page tries again. */
const CONFLICT = {
  type: 'about:blank',
  title: 'Conflict',
  status: 409,
  code: 'conflict',
  detail: 'The machine is being stopped.',
  request_id: randomUUID(),
};

/** Gets a ticket as the page does, with its session. */
async function ticketOf(page: Page, machineId: string): Promise<string> {
  const { ticket } = await page.evaluate(async (id) => {
    const response = await fetch(`/v1/machines/${id}/terminal-session`, { method: 'POST' });
    return (await response.json()) as TerminalSession;
  }, machineId);
  assert.match(ticket, /^sbt_/);
  return ticket;
}

/** Opens a WebSocket with a ticket and closes it. Resolves with the HTTP status of the answer. */
function connect(path: string, ticket: string, origin?: string): Promise<number> {
  const headers = {
    connection: 'Upgrade',
    upgrade: 'websocket',
    'sec-websocket-version': '13',
    'sec-websocket-key': Buffer.alloc(16).toString('base64'),
    ...(origin === undefined ? {} : { origin }),
  };
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const request = requestHttp(`${BASE_URL}${path}?ticket=${ticket}`, { headers });
  request.on('response', (response) => {
    response.resume();
    resolve(response.statusCode ?? 0);
  });
  request.on('upgrade', (response, socket) => {
    socket.destroy();
    resolve(response.statusCode ?? 0);
  });
  request.on('error', reject);
  request.end();
  return promise;
}
