// The browser of the dashboard's benchmarks, and how it signs in.
import { type Browser, type BrowserContext, chromium } from 'playwright-core';

export const launchBrowser = (): Promise<Browser> =>
  chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });

type Owner = { email: string; password: string | null };

/** Opens a window without history that is signed in to the account. Relative URLs in it belong to the service. */
export async function openWindow(browser: Browser, service: string, owner: Owner): Promise<BrowserContext> {
  const context = await browser.newContext({ baseURL: service, viewport: { width: 1280, height: 800 } });
  const answer = await context.request.post('/v1/auth/sign-in', {
    data: { email: owner.email, password: owner.password },
    headers: { origin: new URL(service).origin },
  });
  if (!answer.ok()) throw new Error(`The sign-in answered ${answer.status()}: ${await answer.text()}`);
  return context;
}
