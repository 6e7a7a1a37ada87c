// Where the service is and which key to use, for a client that was not told.
import { readFileSync } from 'node:fs';
import { defaultHome, homePaths } from '@sandbar/contract/home.ts';
import { ConfigurationError } from './errors.ts';

export type Settings = { baseUrl: string; apiKey: string };

/**
 * What was given, else `SANDBAR_BASE_URL` and `SANDBAR_API_KEY`, else credentials.json of the service on this machine.
 * Throws ConfigurationError when a part is missing everywhere.
 */
export function resolveSettings(
  given: { baseUrl?: string | undefined; apiKey?: string | undefined },
  env: NodeJS.ProcessEnv = process.env,
): Settings {
  const baseUrl = given.baseUrl || env.SANDBAR_BASE_URL;
  const apiKey = given.apiKey || env.SANDBAR_API_KEY;
  // A key is only ever sent to the address that it came with.
  if (baseUrl && apiKey) return { baseUrl: withoutSlash(baseUrl), apiKey };
  const file = homePaths(defaultHome(env, process.getuid?.() === 0)).credentials;
  const stored = readStored(file);
  if (stored === undefined) {
    throw new ConfigurationError(
      `no service is known: there is no ${file}; run npm start in the Sandbar checkout, or set SANDBAR_BASE_URL and SANDBAR_API_KEY`,
    );
  }
  if (apiKey) return { baseUrl: withoutSlash(stored.baseUrl), apiKey };
  if (baseUrl && withoutSlash(baseUrl) !== withoutSlash(stored.baseUrl)) {
    throw new ConfigurationError(
      `no key for ${baseUrl}: set SANDBAR_API_KEY (the one in ${file} is for ${stored.baseUrl})`,
    );
  }
  return { baseUrl: withoutSlash(stored.baseUrl), apiKey: stored.apiKey };
}

function readStored(file: string): Settings | undefined {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw new ConfigurationError(`cannot read ${file}: ${error instanceof Error ? error.message : String(error)}`);
  }
  try {
    const { base_url, api_key } = JSON.parse(text) as Record<string, unknown>;
    if (typeof base_url === 'string' && typeof api_key === 'string') return { baseUrl: base_url, apiKey: api_key };
  } catch {
    // Said below.
  }
  throw new ConfigurationError(`${file} is damaged: move it away and run npm start, which makes a new key`);
}

function withoutSlash(url: string): string {
  return url.replace(/\/+$/, '');
}
