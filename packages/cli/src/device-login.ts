// The device login (RFC 8628): asks the service for a code, and polls until a person has approved it in the dashboard.
import { ConfigurationError, ConnectionError } from '@sandbar/sdk/errors.ts';
import { readError } from '@sandbar/sdk/read-error.ts';
import { SandbarError } from '@sandbar/sdk/service-errors.ts';

const PATH = '/v1/auth/device';
/** How long one request may take, in milliseconds. */
const ANSWER_MS = 30_000;
/** The service answers `slow_down` to polls that come too soon. Each such answer adds this to the pause (RFC 8628). */
const SLOWER_SEC = 5;
/** After a poll without an answer the pause doubles, but never exceeds this. */
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

/** Requests a code. The new key gets the `name` of this computer. Throws SandbarError, ConnectionError. */
export function requestCode(baseUrl: string, name: string, signal: AbortSignal): Promise<DeviceCode> {
  return post(baseUrl, 'code', { name }, signal);
}

export type PollOptions = {
  baseUrl: string;
  signal: AbortSignal;
  /** Waits for so many seconds. Rejects with the abort reason if `signal` is aborted. */
  pause: (seconds: number) => Promise<void>;
  /** The present time, ms. */
  now: () => number;
};

/**
 * Polls until the person has approved the code. Throws ConfigurationError when the code expired or was denied,
 * SandbarError for other errors of the service, and the abort reason if `signal` is aborted.
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

/** The pause before the next poll, in seconds. Throws when another poll makes no sense. */
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
