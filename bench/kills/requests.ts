// Sends requests as a patient client. It repeats a request while the service cannot be reached or answers 503, and
// returns every other answer. The SDK is not used, because its own retries would hide answers of the service.
import { setTimeout as delay } from 'node:timers/promises';
import type { Journal } from './journal.ts';

/** The client gives up on a request after this time. */
const PATIENCE_MS = 600_000;
/**
 * The time limit of one attempt. The service may wait 60 s for another operation, and the host may be slow after that.
 */
const ATTEMPT_MS = 300_000;
const LONGEST_PAUSE_MS = 1_000;

export type Request = {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  path: string;
  body?: object;
  /** A body that is not JSON. */
  bytes?: Buffer<ArrayBuffer>;
  headers?: Record<string, string>;
};

export type Answer = {
  status: number;
  /** The parsed JSON of the body, or undefined when the body is empty. */
  body: unknown;
  /** How many earlier attempts may have been carried out, because they got no answer or a 503. */
  uncertain: number;
};

export type Service = { baseUrl: string; apiKey: string };

export type Sender = {
  journal: Journal;
  /** The name of the client in the journal. */
  who: string;
  /** Aborted when the run ends early. Then the client stops retrying. */
  signal: AbortSignal;
};

/**
 * Sends a request until it gets an answer that needs no retry. Throws when that takes longer than 600 s, and when
 * `signal` is aborted.
 */
export async function sendPatiently(
  service: Service,
  request: Request,
  { journal, who, signal }: Sender,
): Promise<Answer> {
  const about = `${request.method} ${request.path}`;
  const until = performance.now() + PATIENCE_MS;
  for (let uncertain = 0; ; uncertain++) {
    const answer = await sendOnce(service, request, signal).catch((error: unknown) => describeBreak(error));
    const reason = typeof answer === 'string' ? answer : reasonToRetry(answer);
    if (typeof answer !== 'string' && reason === undefined) return { ...answer, uncertain };
    if (performance.now() > until) throw new Error(`${about} got no answer in ${PATIENCE_MS / 1000} s: ${reason}`);
    journal.retry(who, String(reason).split(':')[0] ?? '', `${about} ${reason}`);
    const pauseMs = typeof answer === 'string' ? 100 : Number(answer.retryAfter ?? 1) * 1000;
    await delay(Math.min(pauseMs, LONGEST_PAUSE_MS), undefined, { signal });
  }
}

type Received = { status: number; body: unknown; retryAfter: string | null };

async function sendOnce(
  { baseUrl, apiKey }: Service,
  { method, path, body, bytes, headers }: Request,
  signal: AbortSignal,
): Promise<Received> {
  const response = await fetch(`${baseUrl}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${apiKey}`,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    ...(bytes === undefined ? {} : { body: bytes }),
    signal: AbortSignal.any([signal, AbortSignal.timeout(ATTEMPT_MS)]),
  });
  const text = await response.text();
  const retryAfter = response.headers.get('retry-after');
  return { status: response.status, body: text === '' ? undefined : JSON.parse(text), retryAfter };
}

/**
 * Returns why the request must be repeated, or undefined. A 409 with a Retry-After header means that another operation
 * of the machine takes too long.
 */
function reasonToRetry({ status, body, retryAfter }: Received): string | undefined {
  const { code, detail } = (body ?? {}) as { code?: string; detail?: string };
  if (status === 503) return `503 ${code}: ${detail}`;
  return retryAfter !== null && (status === 409 || status === 429) ? `${status} ${code}: ${detail}` : undefined;
}

/** Describes a failed connection. The message of a `fetch` error alone does not name the cause. */
function describeBreak(error: unknown): string {
  const { cause, message } = error as Error & { cause?: { code?: string } };
  return `broken connection: ${cause?.code ?? message}`;
}
