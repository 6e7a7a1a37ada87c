// Sends requests to the admin socket.
import { createTransport, readBytes } from '../../src/hosts/transport.ts';

export type AdminAnswer<T> = { status: number; json: T };

/** Posts `body` to `path`, or sends a GET if there is no body. */
export async function callAdmin<T = Record<string, string | number | null>>(
  socketPath: string,
  path: string,
  body?: object,
): Promise<AdminAnswer<T>> {
  const transport = createTransport({ socketPath });
  try {
    const method = body === undefined ? 'GET' : 'POST';
    const answer = await transport.send({ method, path, body, timeoutMs: 30_000 });
    return { status: answer.status, json: JSON.parse((await readBytes(answer)).toString()) };
  } finally {
    transport.close();
  }
}
