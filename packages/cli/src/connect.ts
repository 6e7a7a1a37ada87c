// Makes the API client that all commands except `admin` and `doctor` use.
import { Client } from '@sandbar/sdk/client.ts';

/** Throws ConfigurationError when the address or the key is missing or empty. */
export function connect(): Client {
  return new Client({ userAgent: 'sandbar-cli/0.1.0' });
}
