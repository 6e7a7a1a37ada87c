// Finds the address of the service and the API key: in the caller's options, the environment or credentials.json.
import { readFileSync } from 'node:fs';
import { defaultHome, homePaths } from '@sandbar/contract/home.ts';
import { ConfigurationError } from './errors.ts';

export type Settings = { baseUrl: string; apiKey: string };

/**
 * Takes the address and the key from `given`, else from `SANDBAR_BASE_URL` and `SANDBAR_API_KEY`, else from
 * credentials.json of the service on this computer. Throws ConfigurationError when the address or the key is missing or
 * empty, or when the address is malformed. An empty variable is an error, because the script that set it did not mean
 * the owner's key in credentials.json.
 */
export function resolveSettings(
  given: { baseUrl?: string | undefined; apiKey?: string | undefined },
  env: NodeJS.ProcessEnv = process.env,
): Settings {
  const baseUrl = readAddress('baseUrl', given.baseUrl) ?? readAddress('SANDBAR_BASE_URL', env.SANDBAR_BASE_URL);
  const apiKey = readFilled('apiKey', given.apiKey) ?? readFilled('SANDBAR_API_KEY', env.SANDBAR_API_KEY);
  // Send the key of credentials.json only to the address in the same file.
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

/** Throws ConfigurationError when the value is empty. */
function readFilled(name: string, value: string | undefined): string | undefined {
  if (value === undefined || value.trim() !== '') return value;
  throw new ConfigurationError(`${name} is set, but empty: give it a value or remove it`);
}

/** Throws ConfigurationError when the value is empty or is not an http or https URL. */
function readAddress(name: string, value: string | undefined): string | undefined {
  const address = readFilled(name, value);
  if (address === undefined || /^https?:$/.test(URL.parse(address)?.protocol ?? '')) return address;
  throw new ConfigurationError(`${name} must be an address such as http://127.0.0.1:7070, not "${address}"`);
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
    // Not JSON: the file is damaged, as the error below says.
  }
  throw new ConfigurationError(`${file} is damaged: move it away and run npm start, which makes a new key`);
}

function withoutSlash(url: string): string {
  return url.replace(/\/+$/, '');
}
