// Makes the API client that all commands except `admin` and `doctor` use.
import { Sandbar } from '@sandbar/sdk/client.ts';

/** Throws ConfigurationError when the address or the key is missing or empty. */
export function connect(): Sandbar {
  return new Sandbar({ userAgent: 'sandbar-cli/0.1.0' });
}
