// Finds the address of the service and the API key: in the caller's options, the environment or a credentials file.
import { platform } from '#platform';
import { ConfigurationError } from './errors.ts';
import type { CredentialsFile } from './platform/platform.ts';

export type Settings = { baseUrl: string; apiKey: string };

/** The parts of the platform that `resolveSettings` needs. */
export type SettingsSource = Pick<typeof platform, 'readVariable' | 'readCredentials'>;

type Stored = Settings & { file: string };

/**
 * Takes the address and the key from `given`, else from `SANDBAR_BASE_URL` and `SANDBAR_API_KEY`, else from the file
 * that `sandbar login` wrote, else from credentials.json of the service on this computer. Throws ConfigurationError when
 * the address or the key is missing, empty or malformed. An empty variable is an error, because a script has set it by
 * mistake. The client must not use the key in credentials.json for such a script.
 */
export function resolveSettings(
  given: { baseUrl?: string | undefined; apiKey?: string | undefined },
  source: SettingsSource = platform,
): Settings {
  const { readVariable } = source;
  const baseUrl =
    readAddress('baseUrl', given.baseUrl) ?? readAddress('SANDBAR_BASE_URL', readVariable('SANDBAR_BASE_URL'));
  const apiKey = readKey('apiKey', given.apiKey) ?? readKey('SANDBAR_API_KEY', readVariable('SANDBAR_API_KEY'));
  if (baseUrl && apiKey) return { baseUrl: withoutSlash(baseUrl), apiKey };
  const files = source.readCredentials();
  const stored = files.map(readStored).filter((found) => found !== undefined);
  const first = stored[0];
  if (first === undefined) {
    const missing = files.map(({ path }) => ` or ${path}`).join('');
    throw new ConfigurationError(
      `no service is known: there is no SANDBAR_BASE_URL with SANDBAR_API_KEY${missing}; run \`sandbar login URL\`, or start a service here with npm start`,
    );
  }
  if (apiKey) return { baseUrl: first.baseUrl, apiKey };
  if (!baseUrl) return { baseUrl: first.baseUrl, apiKey: first.apiKey };
  // Send the key of a file only to the address in the same file.
  const same = stored.find((found) => found.baseUrl === withoutSlash(baseUrl));
  if (same) return { baseUrl: same.baseUrl, apiKey: same.apiKey };
  throw new ConfigurationError(
    `no key for ${baseUrl}: set SANDBAR_API_KEY (the one in ${first.file} is for ${first.baseUrl})`,
  );
}

/** The value without spaces around it. Throws ConfigurationError when it is empty. */
function readFilled(name: string, value: string | undefined): string | undefined {
  if (value === undefined || value.trim() !== '') return value?.trim();
  throw new ConfigurationError(`${name} is set, but empty: give it a value or remove it`);
}

/** Throws ConfigurationError when the key is empty or cannot be sent in a header. The message does not show the key. */
function readKey(name: string, value: string | undefined): string | undefined {
  const key = readFilled(name, value);
  if (key === undefined || /^[\x21-\x7e]+$/.test(key)) return key;
  throw new ConfigurationError(`${name} has a line break, a space or another character that a key never has`);
}

/** Throws ConfigurationError when the value is empty or is not an http or https URL. */
function readAddress(name: string, value: string | undefined): string | undefined {
  const address = readFilled(name, value);
  if (address === undefined || (URL.canParse(address) && /^https?:$/.test(new URL(address).protocol))) return address;
  throw new ConfigurationError(`${name} must be an address such as http://127.0.0.1:7070, not "${address}"`);
}

function readStored({ path: file, text }: CredentialsFile): Stored | undefined {
  if (text === undefined) return undefined;
  try {
    const { base_url, api_key } = JSON.parse(text) as Record<string, unknown>;
    if (typeof base_url === 'string' && typeof api_key === 'string') {
      return { file, baseUrl: withoutSlash(base_url), apiKey: api_key };
    }
  } catch {
    // Not JSON: the file is damaged, as the error below says.
  }
  throw new ConfigurationError(`${file} is damaged: move it away, then run \`sandbar login URL\` or npm start again`);
}

function withoutSlash(url: string): string {
  return url.replace(/\/+$/, '');
}
