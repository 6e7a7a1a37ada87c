// Calls on the operator's socket, which only the owner of the data directory can open: that is the whole credential.
import { request } from 'node:http';
import { defaultHome, homePaths } from '@sandbar/contract/home.ts';
import { ApiError } from '@sandbar/sdk/errors.ts';

const TIMEOUT_MS = 30_000;

/** The socket cannot be used; the message says what to do. */
export class AdminSocketError extends Error {
  override readonly name = 'AdminSocketError';
}

/**
 * Gets the path, or posts a body to it, and resolves with the answer, which may take `timeoutMs`. Throws ApiError,
 * AdminSocketError.
 */
export async function callAdmin<T>(path: string, body?: object, timeoutMs = TIMEOUT_MS): Promise<T> {
  const { adminSocket } = homePaths(defaultHome(process.env, process.getuid?.() === 0));
  const { status, text } = await send(adminSocket, path, body, timeoutMs);
  const answer = parse(text);
  if (status < 300 && answer !== undefined) return answer as T;
  const { code, detail } = { code: 'unknown', detail: `the service answered with status ${status}`, ...answer };
  throw new ApiError({ status, code: String(code), detail: String(detail), requestId: null, retryAfterSec: null });
}

function send(
  socketPath: string,
  path: string,
  body: object | undefined,
  timeoutMs: number,
): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const call = request(
      {
        socketPath,
        path,
        method: body === undefined ? 'GET' : 'POST',
        headers: body === undefined ? {} : { 'content-type': 'application/json' },
        signal: AbortSignal.timeout(timeoutMs),
      },
      (response) => {
        response
          .toArray()
          .then(
            (chunks) => resolve({ status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString() }),
            fail,
          );
      },
    );
    const fail = (error: unknown) => reject(explain(socketPath, error));
    call.once('error', fail);
    call.end(body === undefined ? undefined : JSON.stringify(body));
  });
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
