// Opens the address of a port. Names such as `x.localhost` may not resolve on this computer, so the request goes
// directly to the service, with the name in the header Host.
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { BASE_URL, until } from '../../e2e/support/service.ts';

const service = new URL(BASE_URL);

export type Page = { status: number; text: string; cookies: string[] };

/** Sends a GET request to the address and returns the answer. Does not follow redirects. */
export async function openUrl(address: string, headers: Record<string, string> = {}): Promise<Page> {
  const { host, pathname, search } = new URL(address);
  const target = { host: service.hostname, port: service.port, path: `${pathname}${search}`, agent: false };
  const sent = request({ ...target, headers: { ...headers, host } });
  sent.end();
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  const text = Buffer.concat(await response.toArray()).toString();
  return { status: response.statusCode ?? 0, text, cookies: response.headers['set-cookie'] ?? [] };
}

/** Waits until the program in the machine answers with status 200, and returns the body. */
export async function textAt(address: string, headers: Record<string, string> = {}): Promise<string> {
  let page: Page | undefined;
  await until(`a program answers at ${address}`, async () => {
    page = await openUrl(address, headers);
    return page.status === 200;
  });
  return page?.text ?? '';
}
