// Reads addresses of the form HOST:PORT.
import { HOST_ADDRESS_PATTERN } from '@sandbar/contract/fleet.ts';

export type HostAddress = { host: string; port: number };

const ADDRESS = new RegExp(HOST_ADDRESS_PATTERN);

/** Returns undefined for text in another form, and for a port that does not exist. */
export function parseHostAddress(text: string): HostAddress | undefined {
  if (!ADDRESS.test(text)) return undefined;
  const colon = text.lastIndexOf(':');
  const host = text.slice(0, colon).replace(/^\[|\]$/g, '');
  const port = Number(text.slice(colon + 1));
  return port >= 1 && port <= 65_535 ? { host, port } : undefined;
}

/** Writes an address in the form that {@link parseHostAddress} reads. */
export const formatHostAddress = ({ host, port }: HostAddress): string =>
  host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
