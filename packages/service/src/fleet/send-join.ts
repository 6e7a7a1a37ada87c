// Sends the request of a host that joins to the control plane.
import { AgentCertificate, type HostJoin, JOIN_PATH } from '@sandbar/contract/fleet.ts';
import { Value } from 'typebox/value';
import { messageOf, Problem } from '../problem.ts';

const TIMEOUT_MS = 30_000;

/** Resolves with the certificate. Throws Problem with what to do. */
export async function sendJoin(url: URL, join: HostJoin): Promise<AgentCertificate> {
  const address = `${url.href.replace(/\/$/, '')}${JOIN_PATH}`;
  const { status, text } = await post(address, join);
  const body = parse(text);
  if (status < 300 && Value.Check(AgentCertificate, body)) return body;
  const { code, detail } = Object(body) as { code?: unknown; detail?: unknown };
  if (status >= 300 && typeof detail === 'string') throw new Problem(explain(url, String(code), detail));
  throw new Problem(`${address} did not answer as Sandbar does (status ${status}): is this the address of the API?`);
}

async function post(address: string, body: object): Promise<{ status: number; text: string }> {
  try {
    const answer = await fetch(address, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      // The token must reach nobody but the address that the operator named.
      redirect: 'error',
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    return { status: answer.status, text: await answer.text() };
  } catch (error) {
    throw new Problem(
      `Cannot reach ${address} (${reasonOf(error)}): check the URL and the network. The same command may be run again.`,
    );
  }
}

/** `fetch` hides the reason in a cause. */
function reasonOf(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  const code = cause instanceof Error && 'code' in cause ? `${String(cause.code)}: ` : '';
  return `${code}${messageOf(cause)}`;
}

function explain({ origin }: URL, code: string, detail: string): string {
  if (code === 'unauthenticated') return `${origin} refuses the token: ${detail}`;
  return `${origin} refuses this host (${code}): ${detail}`;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
