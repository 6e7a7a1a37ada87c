// One JSON request on a Unix socket of the service. The supervisor asks the control plane this way; the end-to-end
// tests and the benchmark ask the host agent, too.
import { Client } from 'undici';

export type UnixAnswer = { status: number; text: string };

export type UnixRequest = {
  method?: 'GET' | 'POST';
  path: string;
  /** Sent as JSON. */
  body?: object;
  /** For the whole exchange. */
  timeoutMs?: number;
};

/** Resolves with the answer, whatever its status. Rejects when there is no complete answer within `timeoutMs`. */
export async function requestUnix(
  socketPath: string,
  { method = 'GET', path, body, timeoutMs = 60_000 }: UnixRequest,
): Promise<UnixAnswer> {
  const client = new Client('http://localhost', { socketPath, headersTimeout: 0, bodyTimeout: 0 });
  const content =
    body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } };
  try {
    const answer = await client.request({ method, path, ...content, signal: AbortSignal.timeout(timeoutMs) });
    return { status: answer.statusCode, text: await answer.body.text() };
  } finally {
    await client.destroy();
  }
}

/** Gets JSON. Rejects when the answer is not 200. */
export async function getUnixJson<T>(socketPath: string, path: string): Promise<T> {
  const { status, text } = await requestUnix(socketPath, { path });
  if (status !== 200) throw new Error(`${path} answered ${status}: ${text}`);
  return JSON.parse(text) as T;
}
