// Asks the service whether an API key is valid, so that a client with a wrong key gets an error when it connects.
import { createHash } from 'node:crypto';
import { Client } from '@sandbar/sdk/client.ts';
import { ConnectionError } from '@sandbar/sdk/errors.ts';
import { SandbarError, UnauthenticatedError } from '@sandbar/sdk/service-errors.ts';

/** How long a key counts as valid after a check, ms. The service itself checks the key of each tool call. */
const VALID_MS = 60_000;
const CHECK_TIMEOUT_MS = 10_000;
const KEPT_KEYS = 1000;

export type KeyState = 'valid' | 'invalid' | 'unknown';

export class KeyChecks {
  readonly #baseUrl: string;
  /** The time (`performance.now`) until which a key counts as valid, by the hash of the key. */
  readonly #validUntil = new Map<string, number>();

  constructor(baseUrl: string) {
    this.#baseUrl = baseUrl;
  }

  /** Returns `unknown` when the service does not answer, fails or limits the rate. */
  async check(apiKey: string): Promise<KeyState> {
    const hash = hashOf(apiKey);
    if ((this.#validUntil.get(hash) ?? 0) > performance.now()) return 'valid';
    const state = await this.#ask(apiKey);
    this.#validUntil.delete(hash);
    if (state !== 'valid') return state;
    const [oldest] = this.#validUntil.keys();
    if (this.#validUntil.size >= KEPT_KEYS && oldest !== undefined) this.#validUntil.delete(oldest);
    this.#validUntil.set(hash, performance.now() + VALID_MS);
    return state;
  }

  async #ask(apiKey: string): Promise<KeyState> {
    try {
      const client = new Client({ baseUrl: this.#baseUrl, apiKey, retryForSec: 0, timeoutMs: CHECK_TIMEOUT_MS });
      await client.account.get();
      return 'valid';
    } catch (error) {
      if (error instanceof UnauthenticatedError) return 'invalid';
      if (error instanceof ConnectionError) return 'unknown';
      if (!(error instanceof SandbarError)) throw error;
      // The key itself is valid. The tool calls report other refusals, such as a suspended account.
      return error.status >= 500 || error.status === 429 ? 'unknown' : 'valid';
    }
  }
}

export function hashOf(apiKey: string): string {
  return createHash('sha256').update(apiKey).digest('base64');
}
