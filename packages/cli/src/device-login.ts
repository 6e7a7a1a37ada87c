// The device login (RFC 8628): asks the service for a code, and polls until a person has approved it in the dashboard.
import { ConfigurationError, ConnectionError } from '@sandbar/sdk/errors.ts';
import { readError } from '@sandbar/sdk/read-error.ts';
import { SandbarError } from '@sandbar/sdk/service-errors.ts';

const PATH = '/v1/auth/device';
/** How long one request may take. */
const ANSWER_MS = 30_000;
/** The service answers `slow_down` when polls come too soon. Each makes the pause this much longer (RFC 8628, 3.5). */
const SLOWER_SEC = 5;
/** After a poll without an answer the pause doubles, up to this. */
const LONGEST_PAUSE_SEC = 60;

/** The answer to the request for a code. */
export type DeviceCode = {
  device_code: string;
  user_code: string;
  verification_uri: string;
  verification_uri_complete: string;
  /** How long the code can be used, seconds. */
  expires_in: number;
  /** The pause between two polls, seconds. */
  interval: number;
};

/** The API key that the person approved. */
export type DeviceKey = { key: string; name: string; scope: string };

/** `name`: of this computer; the key gets it. Throws SandbarError, ConnectionError. */
export function requestCode(baseUrl: string, name: string, signal: AbortSignal): Promise<DeviceCode> {
  return post(baseUrl, 'code', { name }, signal);
}

export type PollOptions = {
  baseUrl: string;
  signal: AbortSignal;
  /** Waits, in seconds. Rejects with the reason of an aborted signal. */
  pause: (seconds: number) => Promise<void>;
  /** The present time, ms. */
  now: () => number;
};

/**
 * Polls until the person has approved the code. Throws ConfigurationError when the code has expired or was denied, other
 * errors of the service as SandbarError, and the reason of an aborted signal.
 */
export async function pollForKey(code: DeviceCode, { baseUrl, signal, pause, now }: PollOptions): Promise<DeviceKey> {
  const expiresAt = now() + code.expires_in * 1000;
  for (let waitSec = code.interval; now() < expiresAt; ) {
    await pause(waitSec);
    try {
      return await post<DeviceKey>(baseUrl, 'token', { device_code: code.device_code }, signal);
    } catch (error) {
      signal.throwIfAborted();
      waitSec = nextPause(error, waitSec);
    }
  }
  throw expired();
}

/** The pause before the next poll, in seconds. Throws when there will be no key. */
function nextPause(error: unknown, waitSec: number): number {
  if (error instanceof SandbarError) {
    if (error.code === 'authorization_pending') return waitSec;
    if (error.code === 'slow_down') return waitSec + SLOWER_SEC;
    if (error.code === 'expired_token') throw expired();
    if (error.code === 'access_denied') throw new ConfigurationError('the login was denied in the dashboard');
    if (error.status !== 429 && error.status < 500) throw error;
  } else if (!(error instanceof ConnectionError)) {
    throw error;
  }
  return Math.max(waitSec, Math.min(waitSec * 2, LONGEST_PAUSE_SEC));
}

function expired(): ConfigurationError {
  return new ConfigurationError(
    'the code has expired: run sandbar login again for a new one. If it was approved, its key was not received but stays in the account: revoke it in the dashboard, under API keys',
  );
}

async function post<T>(baseUrl: string, path: string, body: object, signal: AbortSignal): Promise<T> {
  const response = await fetch(`${baseUrl}${PATH}/${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'application/json', 'user-agent': 'sandbar-cli/0.1.0' },
    body: JSON.stringify(body),
    signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]),
  }).catch((error: unknown) => {
    signal.throwIfAborted();
    throw new ConnectionError(baseUrl, error);
  });
  if (!response.ok) throw await readError(response);
  try {
    return (await response.json()) as T;
  } catch (error) {
    signal.throwIfAborted();
    throw new ConnectionError(baseUrl, error);
  }
}
