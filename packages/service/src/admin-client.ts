// Calls on the control plane's admin socket, which only the operator can open.
import { request } from 'node:http';
import { messageOf } from './problem.ts';

export type AdminAnswer = { status: number; body: Record<string, unknown> };

/** Posts JSON and returns the answer, whatever its status. Rejects when nobody answers within `timeoutMs`. */
export async function postAdmin(
  socketPath: string,
  path: string,
  body: object,
  timeoutMs = 30_000,
): Promise<AdminAnswer> {
  return new Promise((resolve, reject) => {
    const call = request(
      {
        socketPath,
        path,
        method: 'POST',
        headers: { 'content-type': 'application/json', 'user-agent': 'sandbar-service/0.1.0' },
        signal: AbortSignal.timeout(timeoutMs),
      },
      (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (chunk: string) => {
          text += chunk;
        });
        response.once('error', reject);
        response.once('end', () => resolve({ status: response.statusCode ?? 0, body: parseObject(text) }));
      },
    );
    call.once('error', (error) => reject(new Error(`the admin socket does not answer ${path}: ${messageOf(error)}`)));
    call.end(JSON.stringify(body));
  });
}

function parseObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? { ...value } : {};
  } catch {
    return { detail: text.slice(0, 200) };
  }
}
