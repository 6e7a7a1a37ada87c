// Sends requests to ports of a machine, with the key of the account.
import { once } from 'node:events';
import { type IncomingMessage, request as openRequest, type RequestOptions } from 'node:http';
import type { startTestBed } from './test-bed.ts';

export async function answerOf(request: ReturnType<typeof openRequest>): Promise<IncomingMessage> {
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  return response;
}

export const textOf = async (response: IncomingMessage): Promise<string> =>
  Buffer.concat(await response.toArray()).toString('latin1');

export function portClient({ plane, keys }: Awaited<ReturnType<typeof startTestBed>>, machine: string) {
  const nameOf = (port: number, id = machine) => `${port}-${id}.localhost:7070`;
  /** The lines of a head that every raw request of these tests has. */
  const common = (port: number) => `Host: ${nameOf(port)}\r\nX-Sandbar-Key: ${keys.full}\r\n`;

  /** Opens a request with the key of the account. The caller ends it. */
  function open(port: number, options: RequestOptions = {}) {
    const headers = { host: nameOf(port), 'x-sandbar-key': keys.full, ...(options.headers as object) };
    const { host: address, port: servicePort } = plane.address;
    return openRequest({ host: address, port: servicePort, agent: false, ...options, headers });
  }

  async function fetchText(port: number, options: RequestOptions = {}, body = '') {
    const request = open(port, options);
    request.end(body);
    const response = await answerOf(request);
    return { status: response.statusCode, response, text: await textOf(response) };
  }

  return { nameOf, common, open, fetchText };
}
