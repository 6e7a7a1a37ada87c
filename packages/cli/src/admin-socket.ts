// Sends requests over the operator's Unix socket. Only the owner of the data directory can open it, so it needs no key.
import { type IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { defaultHome, homePaths } from '@sandbar/contract/home.ts';
import { SandbarError } from '@sandbar/sdk/service-errors.ts';
import { settleLater } from '@sandbar/sdk/settle-later.ts';
import { AdminSocketError } from './admin-socket-error.ts';

const TIMEOUT_MS = 30_000;

/**
 * Sends a GET, or a POST when there is a body, and returns the JSON of the answer. Throws SandbarError, and
 * AdminSocketError, also when the service sends nothing for `timeoutMs`.
 */
export async function callAdmin<T>(path: string, body?: object, timeoutMs = TIMEOUT_MS): Promise<T> {
  const { adminSocket } = homePaths(defaultHome(process.env, process.getuid?.() === 0));
  const { status, text: sent } = await send(adminSocket, path, body, timeoutMs);
  const answer = parse(sent);
  if (status < 300 && answer !== undefined) return answer as T;
  const { code, detail } = { code: 'unknown', detail: `the service answered with status ${status}`, ...answer };
  throw new SandbarError({ status, code: String(code), detail: String(detail), requestId: null, retryAfterSec: null });
}

/** Throws AdminSocketError. */
async function send(
  socketPath: string,
  path: string,
  body: object | undefined,
  timeoutMs: number,
): Promise<{ status: number; text: string }> {
  const { promise, resolve, reject } = settleLater<IncomingMessage>();
  const sent = request({
    socketPath,
    path,
    method: body === undefined ? 'GET' : 'POST',
    headers: body === undefined ? {} : { 'content-type': 'application/json' },
    // The command ends after one answer, so keep no connection.
    agent: false,
  });
  // The time counts from the last byte that was sent or received.
  sent.setTimeout(timeoutMs, () => sent.destroy(Object.assign(new Error('no answer in time'), { code: 'ETIMEDOUT' })));
  sent.once('response', resolve).on('error', reject);
  sent.end(body === undefined ? undefined : JSON.stringify(body));
  try {
    const answer = await promise;
    return { status: answer.statusCode ?? 500, text: await text(answer) };
  } catch (error) {
    throw explain(socketPath, error);
  }
}

function explain(socketPath: string, error: unknown): AdminSocketError {
  const code = error instanceof Error && 'code' in error ? String(error.code) : String(error);
  return new AdminSocketError(`${problemOf(socketPath, code)} (SANDBAR_HOME names another data directory)`, {
    cause: error,
  });
}

function problemOf(socketPath: string, code: string): string {
  switch (code) {
    case 'ENOENT':
      return `there is no operator's socket at ${socketPath}: is npm start running, and are you the owner of its data directory?`;
    case 'ECONNREFUSED':
      return `nobody answers at ${socketPath}: is npm start running?`;
    case 'EACCES':
    case 'EPERM':
      return `you may not open ${socketPath}: are you the owner of the data directory?`;
    default:
      return `the operator's socket ${socketPath} does not answer: ${code}`;
  }
}

function parse(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}
