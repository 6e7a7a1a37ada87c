// Opens an address of a port. Names below localhost need not resolve here, so the request goes to the service itself.
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { BASE_URL, until } from '../../e2e/support/service.ts';

const service = new URL(BASE_URL);

export type Page = { status: number; text: string; cookies: string[] };

/** The answer to GET of an address. Follows no redirect. */
export async function openUrl(address: string, headers: Record<string, string> = {}): Promise<Page> {
  const { host, pathname, search } = new URL(address);
  const target = { host: service.hostname, port: service.port, path: `${pathname}${search}`, agent: false };
  const sent = request({ ...target, headers: { ...headers, host } });
  sent.end();
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  const text = Buffer.concat(await response.toArray()).toString();
  return { status: response.statusCode ?? 0, text, cookies: response.headers['set-cookie'] ?? [] };
}

/** The body of a page, as soon as the program in the machine answers. */
export async function textAt(address: string, headers: Record<string, string> = {}): Promise<string> {
  let page: Page | undefined;
  await until(`a program answers at ${address}`, async () => {
    page = await openUrl(address, headers);
    return page.status === 200;
  });
  return page?.text ?? '';
}
