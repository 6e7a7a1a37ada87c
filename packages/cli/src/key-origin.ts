// Finds out where the SDK took the API key from.
import { platform } from '@sandbar/sdk/platform/node.ts';

/**
 * Returns `SANDBAR_API_KEY` when that variable has the key, else the path of the credentials file that has it. Like the
 * SDK, this looks at the variable first, and then takes the first file whose address is `baseUrl`.
 */
export function findKeyOrigin(baseUrl: string): string {
  if (platform.readVariable('SANDBAR_API_KEY') !== undefined) return 'SANDBAR_API_KEY';
  return platform.readCredentials().find(({ text }) => addressIn(text) === baseUrl)?.path ?? 'an unknown place';
}

/** The address in a credentials file, without slashes at its end. */
function addressIn(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  const { base_url } = JSON.parse(text) as { base_url?: unknown };
  return typeof base_url === 'string' ? base_url.replace(/\/+$/, '') : undefined;
}
