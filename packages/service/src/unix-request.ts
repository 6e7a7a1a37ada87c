// Sends one JSON request on a Unix socket of the service. The supervisor uses it to call the control plane; the
// end-to-end tests and the benchmark also use it to call the host agent.
import { Client } from 'undici';

export type UnixAnswer = { status: number; text: string };

export type UnixRequest = {
  method?: 'GET' | 'POST';
  path: string;
  /** The request body, sent as JSON. */
  body?: object;
  /** Time-out of the whole request and response. */
  timeoutMs?: number;
};

/** Resolves with the response, whatever its status. Rejects when it is not complete within `timeoutMs`. */
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

/** Gets JSON. Rejects when the status is not 200. */
export async function getUnixJson<T>(socketPath: string, path: string): Promise<T> {
  const { status, text } = await requestUnix(socketPath, { path });
  if (status !== 200) throw new Error(`${path} answered ${status}: ${text}`);
  return JSON.parse(text) as T;
}
