// Calls on the control plane's admin socket, which only the operator can open.
import { messageOf } from './problem.ts';
import { requestUnix } from './unix-request.ts';

export type AdminAnswer = { status: number; body: Record<string, unknown> };

/** Posts JSON and resolves with the response, whatever its status. Rejects when none comes within `timeoutMs`. */
export async function postAdmin(
  socketPath: string,
  path: string,
  body: object,
  timeoutMs = 30_000,
): Promise<AdminAnswer> {
  const answer = await requestUnix(socketPath, { method: 'POST', path, body, timeoutMs }).catch((error: unknown) => {
    throw new Error(`the admin socket does not answer ${path}: ${messageOf(error)}`);
  });
  return { status: answer.status, body: parseObject(answer.text) };
}

function parseObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? { ...value } : {};
  } catch {
    return { detail: text.slice(0, 200) };
  }
}
