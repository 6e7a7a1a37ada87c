// Opens the dashboard of the running service in headless Chromium. Every page fails its test on an error in the browser's
// console, on an exception, and on a request to another origin.
import assert from 'node:assert/strict';
import { after } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';
import type { TestAccount } from '../../e2e/support/accounts.ts';
import { BASE_URL } from '../../e2e/support/service.ts';

export const THEMES = ['light', 'dark'] as const;
export const WIDE = { width: 1280, height: 800 };
export const NARROW = { width: 390, height: 844 };

export type Window = {
  theme?: (typeof THEMES)[number];
  size?: { width: number; height: number };
  /** Signs in to this account first. Without it, the window has no session. */
  account?: TestAccount;
  /** The URL of another control plane than that of the running service. Its tests sign in by themselves. */
  service?: string;
  /** Errors in the console that the test provokes. Each is a part of its text. */
  allowed?: readonly string[];
};

/** What the browser says about every refused request. Tests of refusals look at what the page says. */
const REFUSED = 'Failed to load resource: the server responded with a status of 4';

/** The browser reports it when a machine of any test gets or loses its network device. */
const NETWORK_CHANGED = 'Failed to load resource: net::ERR_NETWORK_CHANGED';

let launched: Promise<Browser> | undefined;

/** The browser of this test file. It ends with the file. */
function browser(): Promise<Browser> {
  launched ??= chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
  return launched;
}

after(async () => {
  await (await launched)?.close();
});

/** Opens a window, runs `work` with its page, and closes it. Rejects when the browser reported an error meanwhile. */
export async function withPage(
  { theme = 'light', size = WIDE, account, service = BASE_URL, allowed = [] }: Window,
  work: (page: Page, context: BrowserContext) => Promise<void>,
): Promise<void> {
  const context = await (await browser()).newContext({ baseURL: service, colorScheme: theme, viewport: size });
  const errors: string[] = [];
  context.on('console', (message) => {
    if (message.type() === 'error') errors.push(message.text());
  });
  context.on('weberror', (error) => errors.push(String(error.error())));
  context.on('request', (request) => {
    const { protocol, origin } = new URL(request.url());
    if (protocol.startsWith('http') && origin !== new URL(service).origin) errors.push(`asked ${request.url()}`);
  });
  try {
    if (account) await addSession(context, account);
    await work(await context.newPage(), context);
  } finally {
    await context.close();
  }
  const unexpected = errors.filter(
    (error) => ![REFUSED, NETWORK_CHANGED, ...allowed].some((known) => error.includes(known)),
  );
  assert.deepEqual(unexpected, [], 'errors of the browser');
}

/** The cookies of the sessions of this test file, by account. The API limits how often an account may sign in. */
const sessions = new Map<string, Awaited<ReturnType<BrowserContext['cookies']>>>();

/** Gives the browser a session of the account: that of an earlier window of this file, unless it has ended. */
async function addSession(context: BrowserContext, { email, password }: TestAccount): Promise<void> {
  await context.addCookies(sessions.get(email) ?? []);
  if ((await context.request.get('/v1/account')).ok()) return;
  for (;;) {
    const response = await context.request.post('/v1/auth/sign-in', {
      data: { email, password },
      headers: { origin: new URL(BASE_URL).origin },
    });
    if (response.ok()) break;
    assert.equal(response.status(), 429, await response.text());
    await setTimeout(Number(response.headers()['retry-after']) * 1000);
  }
  sessions.set(email, await context.cookies());
}
