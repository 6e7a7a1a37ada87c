// Reads environment variables in ways that several parts of the configuration share.
import { ConfigError } from './config-error.ts';

export type Env = Record<string, string | undefined>;

/**
 * Reads variables of which either all or none must be set. When none is set, all values are undefined. Throws
 * `ConfigError`.
 */
export function allOrNone(env: Env, names: readonly string[]): (string | undefined)[] {
  const missing = names.filter((name) => !env[name]);
  if (missing.length > 0 && missing.length < names.length) {
    throw new ConfigError(`${names.join(', ')} belong together: ${missing.join(' and ')} is not set.`);
  }
  return names.map((name) => env[name] || undefined);
}

/** Reads a URL. The error does not quote the value, which may hold a password. */
export function readUrl(env: Env, name: string, protocols: readonly string[], fallback?: string): URL {
  const url = URL.parse(env[name] || fallback || '');
  if (url && protocols.includes(url.protocol)) return url;
  throw new ConfigError(`${name} must be a URL that begins with ${protocols.map((p) => `${p}//`).join(' or ')}.`);
}
