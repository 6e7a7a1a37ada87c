// The client that the commands share.
import { Sandbar } from '@sandbar/sdk/client.ts';

/** Throws ConfigurationError when no address or key is known. */
export function connect(): Sandbar {
  return new Sandbar({ userAgent: 'sandbar-cli/0.1.0' });
}
